package metrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A witness shows when its certificate expires, also after it was renewed.
func TestCertificateOfAWitness(t *testing.T) {
	expires := time.Unix(1_800_000_000, 0)
	h := Witness("v1", func() (used, quota uint64) { return 1, 2 }, func() map[string]time.Time { return map[string]time.Time{"node": expires} })
	for _, want := range []string{"1.8e+09", "1.9e+09"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		if line := "\nunderstudy_certificate_expiry_timestamp_seconds{kind=\"node\"} " + want + "\n"; !strings.Contains(w.Body.String(), line) {
			t.Errorf("got %s\nwant %s in it", w.Body, line)
		}
		expires = time.Unix(1_900_000_000, 0)
	}
}
