package app

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"github.com/understudy-store/understudy/internal/httpapi"
)

// A waiting answers over HTTP while a node waits for the members of etcd, which may take
// as long as its operators like: the process lives, is not ready, and says what it waits
// for. It answers nothing over gRPC, so that clients go on to a node that knows more.
type waiting struct {
	reason   atomic.Pointer[string]
	listener net.Listener // on the socket of the server that is to come
}

// newWaiting returns one on the port of a listener, which stays as it is.
func newWaiting(l net.Listener) (*waiting, error) {
	of, ok := l.(interface{ File() (*os.File, error) })
	if !ok {
		return nil, errors.ErrUnsupported
	}
	f, err := of.File()
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	same, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	w := &waiting{listener: same}
	w.say("this node waits for etcd")
	return w, nil
}

func (w *waiting) say(reason string) { w.reason.Store(&reason) }

func (w *waiting) close() { _ = w.listener.Close() }

// answer answers until end is called. Where HTTP is restricted, it leaves out the reason,
// which names other nodes and is in the log.
func (w *waiting) answer(a *App) (end func()) {
	guarded := a.callers != nil || len(a.cfg.Security.HTTPHosts) > 0
	server := httpapi.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		reason := *w.reason.Load()
		if guarded {
			reason = "this node waits for etcd; its log says more"
		}
		answerWaiting(out, r, reason)
	}), a.connections.http, a.httpTLS(), a.log)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(w.listener) })
	return func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = server.Stop(now)
		serving.Wait()
	}
}

// answerWaiting says that the process lives, and that it is not ready.
func answerWaiting(out http.ResponseWriter, r *http.Request, reason string) {
	code := http.StatusServiceUnavailable
	if r.URL.Path == "/health" {
		code = http.StatusOK
	}
	out.Header().Set("Content-Type", "application/json")
	out.Header().Set("X-Content-Type-Options", "nosniff")
	out.WriteHeader(code)
	_ = json.NewEncoder(out).Encode(map[string]any{"status": "waiting", "service_ready": false, "reason": reason})
}
