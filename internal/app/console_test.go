package app

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
)

// The console of a pair: each node knows the terms; the standby leads to the primary; a
// planned change is one on the Timeline of the next primary.
func TestConsoleOfAPair(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t).Endpoints()
	primary := startHTTPNode(t, config.Primary, etcd)
	primary.becomes("/readyz", http.StatusOK, "OK")
	standby := startHTTPNode(t, config.Standby, etcd)
	standby.becomes("/readyz?role=standby", http.StatusOK, "OK")
	primary.put("k")
	primary.becomes("/", http.StatusOK, "<h1>Timeline</h1>") // it is led there
	primary.becomes("/console/timeline", http.StatusOK, "term 1: "+primary.cfg.Node.ID+" serves")
	primary.curves()
	standby.becomes("/console/timeline", http.StatusOK, `<a href="http://`+primary.cfg.Node.HTTPAddress+`/console/timeline">`)
	standby.becomes("/console/timeline", http.StatusOK, "this node loaded a snapshot")
	for page, want := range map[string]string{
		"cluster": "masterctl handover --to " + standby.cfg.Node.ID, "memory": "host-a", "cache": "Age at eviction", "key?key=k": "MEMORY", "settings": "(primary)",
		"journal": "PUT_START", "leases": "of 1 objects",
	} {
		for _, n := range []*httpNode{primary, standby} {
			n.becomes("/console/"+page, http.StatusOK, want)
			if _, body := n.ask("/console/" + page); strings.Contains(body, "not whole") {
				t.Errorf("%s is not whole: %s", page, body)
			}
		}
	}
	primary.want("/console/cluster", http.StatusOK, "Answers in", "(this one)", standby.cfg.Node.ID)
	primary.orders(standby)
	standby.becomes("/console/timeline", http.StatusOK, "a planned change to "+standby.cfg.Node.ID+", term 2")
	standby.becomes("/console/timeline", http.StatusOK, "and serves")
}

// orders gives the orders that the page Cluster has: a pause, and then the handover, not
// from a page of another site.
func (n *httpNode) orders(to *httpNode) {
	n.t.Helper()
	const pause, handover = "/understudy.v1.AdminService/PauseTakeover", "/understudy.v1.AdminService/Handover"
	n.want("/console/cluster", http.StatusOK, `action="`+pause+`"`, `action="`+handover+`"`, `name="term" value="1"`, `name="target_node_id" value="`+to.cfg.Node.ID+`"`)
	fields := url.Values{"term": {"1"}, "target_node_id": {to.cfg.Node.ID}}
	n.post(pause, "cross-site", url.Values{"for_ms": {"600000"}}, http.StatusForbidden)
	n.post(pause, "same-origin", url.Values{"for_ms": {"600000"}}, http.StatusOK)
	n.becomes("/console/cluster", http.StatusOK, "automatic takeover is paused for another")
	n.post(pause, "same-origin", url.Values{"for_ms": {"0"}}, http.StatusOK)
	n.post(handover, "cross-site", fields, http.StatusForbidden)
	n.want("/readyz", http.StatusOK, "OK")
	n.post(handover, "same-origin", fields, http.StatusOK)
	to.becomes("/readyz", http.StatusOK, "OK")
}

// post sends a form as a browser does.
func (n *httpNode) post(path, site string, fields url.Values, want int) {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), http.MethodPost, "http://"+n.cfg.Node.HTTPAddress+path, strings.NewReader(fields.Encode()))
	if err != nil {
		n.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", site)
	resp, err := n.http.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != want {
		n.t.Fatalf("%s of a page that is %s: got %d %s %v, want %d", path, site, resp.StatusCode, body, err, want)
	}
}

func TestConsoleOfALoneNode(t *testing.T) {
	t.Parallel()
	n := startHTTPNode(t, config.Primary, nil)
	n.becomes("/readyz", http.StatusOK, "OK")
	n.put("k")
	n.curves()
	n.want("/console/timeline", http.StatusOK, "this process started")
	for _, page := range []string{"timeline", "cluster", "memory", "cache", "key?key=k", "settings", "journal", "leases"} {
		n.want("/console/"+page, http.StatusOK, "and serves")
		if _, body := n.ask("/console/" + page); strings.Contains(body, "not whole") {
			t.Errorf("%s is not whole: %s", page, body)
		}
	}
}

// curves waits until the Timeline has a put with its latency.
func (n *httpNode) curves() {
	n.t.Helper()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for end := time.After(20 * time.Second); ; {
		var got struct {
			Puts, P99 []float64 // null is 0
		}
		_, body := n.ask("/console/timeline.json?w=5m")
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			n.t.Fatal(err)
		}
		// Less than 1 a second if two samples are of one second, as on a busy machine.
		if i := slices.IndexFunc(got.Puts, func(puts float64) bool { return puts > 0 }); i >= 0 && got.P99[i] > 0 {
			return
		}
		select {
		case <-poll.C:
		case <-end:
			n.t.Fatalf("the Timeline has no put: %s", body)
		}
	}
}
