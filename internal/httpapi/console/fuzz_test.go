package console

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// FuzzConsole asks for each page with any query: it is made, and what the query says is text in
// it, never an element, an attribute or a link of its own.
func FuzzConsole(f *testing.F) {
	paths := []string{"timeline.json"}
	for _, p := range pages() {
		paths = append(paths, p.Name)
	}
	hostile := `"><script>alert(1)</script><a href="javascript:x" onclick=x>`
	for i := range paths {
		for _, text := range []string{"", "run/1", "03:12", "2026-01-31T03:12", "9999-12-31T23:59:59Z", "25h", "1m", "-1h", "\x00\r\n\xff", hostile} {
			f.Add(uint8(i), text, text)
		}
		f.Add(uint8(i), "06:00", "24h")
	}
	r, m := newPrimaryRig(f)
	put(f, m, "run/1", true)
	put(f, m, hostile, false)
	r.terms = threeTerms()
	r.events = []*pb.EventsResponse{{Term: 1, Sequence: 1, Type: "PUT_END", Text: "key " + hostile}}
	r.Recorder.record()
	h := Handler(r.Sources)
	f.Fuzz(func(t *testing.T, page uint8, one, other string) {
		name := paths[int(page)%len(paths)]
		query := url.Values{"key": {one}, "tenant": {other}, "at": {one}, "w": {other}, "text": {one}, "type": {other}}.Encode()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/console/"+name+"?"+query, nil))
		if name == "timeline.json" {
			checkChart(t, query, w)
			return
		}
		if w.Code != http.StatusOK {
			t.Fatalf("%s?%s: got %d %s, want 200", name, query, w.Code, w.Body)
		}
		tree, _ := parse(t, w.Body.String())
		scripts := 0
		for n := range tree.Descendants() {
			if n.Type != html.ElementNode {
				continue
			}
			if n.Data == "script" {
				scripts++
			}
			for _, a := range n.Attr {
				to, err := url.Parse(a.Val)
				link := a.Key == "href" || a.Key == "src" || a.Key == "action"
				if strings.HasPrefix(a.Key, "on") || link && (err != nil || to.Host != "" || to.Scheme != "") {
					t.Fatalf("%s?%s: got <%s %s=%q>, want no script in an attribute and no link elsewhere", name, query, n.Data, a.Key, a.Val)
				}
			}
		}
		if scripts != 2 {
			t.Fatalf("%s?%s: %d scripts, want those two of every page\n%s", name, query, scripts, w.Body)
		}
	})
}

// checkChart demands a chart of a time that can be shown, or a refusal.
func checkChart(t *testing.T, query string, w *httptest.ResponseRecorder) {
	t.Helper()
	var chart struct{ From, To float64 }
	err := json.Unmarshal(w.Body.Bytes(), &chart)
	width := chart.To - chart.From
	if w.Code != http.StatusBadRequest && (w.Code != http.StatusOK || err != nil || width < 59 || width > 24*60*60+1) {
		t.Fatalf("timeline.json?%s: got %d, error %v, a chart of %v s, want 400, or a minute to a day\n%s", query, w.Code, err, width, w.Body)
	}
}
