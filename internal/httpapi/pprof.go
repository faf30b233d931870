package httpapi

import (
	"net/http"
	"net/http/pprof"
	"strconv"

	"golang.org/x/sync/semaphore"
)

const (
	maxProfiles       = 4   // that are taken at once
	maxProfileSeconds = 300 // of one
)

// profiles answers with profiles of this process, as go tool pprof asks for them.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	places := semaphore.NewWeighted(maxProfiles)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := r.URL.Query().Get("seconds")
		if n, err := strconv.ParseFloat(text, 64); text != "" && (err != nil || !(0 <= n && n <= maxProfileSeconds)) {
			writeText(w, http.StatusBadRequest, "seconds must be a number from 0 to "+strconv.Itoa(maxProfileSeconds))
			return
		}
		if !places.TryAcquire(1) {
			writeText(w, http.StatusServiceUnavailable, strconv.Itoa(maxProfiles)+" profiles are being taken, which is the most at once; try again")
			return
		}
		defer places.Release(1)
		mux.ServeHTTP(w, r)
	})
}
