package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/client"
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
				t.Errorf("console page %s at %s: got an answer that is not whole, want a whole one on both nodes: %s", page, n.cfg.Node.ID, body)
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
			t.Errorf("console page %s of a lone node: got an answer that is not whole, want a whole one: %s", page, body)
		}
	}
}

// curves waits until the Timeline has a put with its latency.
func (n *httpNode) curves() {
	n.t.Helper()
	n.step("a put", func() {}, func(s step) bool { return s.Puts > 0 && s.P99 > 0 })
}

// A step is what the Timeline's curves have at a time. What is null there is -1.
type step struct {
	At                   int64
	Hit, Gets, Puts, P99 float64
}

// steps returns the Timeline's curves.
func (n *httpNode) steps() (list []step) {
	n.t.Helper()
	var got struct {
		At                   []int64
		Hit, Gets, Puts, P99 []*float64
	}
	_, body := n.ask("/console/timeline.json?w=5m")
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		n.t.Fatal(err)
	}
	value := func(v *float64) float64 {
		if v == nil {
			return -1
		}
		return *v
	}
	for i, at := range got.At {
		list = append(list, step{at, value(got.Hit[i]), value(got.Gets[i]), value(got.Puts[i]), value(got.P99[i])})
	}
	return list
}

// step waits until the curves have a certain step. It makes calls meanwhile.
func (n *httpNode) step(what string, calls func(), is func(step) bool) step {
	n.t.Helper()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for end := time.After(20 * time.Second); ; {
		calls()
		steps := n.steps()
		if i := slices.IndexFunc(steps, is); i >= 0 {
			return steps[i]
		}
		select {
		case <-poll.C:
		case <-end:
			n.t.Fatalf("the Timeline after 20 s: got the steps %+v, want one with %s", steps, what)
		}
	}
}

// A standby has the curves of the primary, and keeps them when it is primary itself. Nobody
// called it: it shows no other value for the time before.
func TestCurvesOfAnEarlierPrimary(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t).Endpoints()
	primary := startHTTPNode(t, config.Primary, etcd)
	primary.becomes("/readyz", http.StatusOK, "OK")
	standby := startHTTPNode(t, config.Standby, etcd)
	standby.becomes("/readyz?role=standby", http.StatusOK, "OK")
	if first := standby.step("a value or none", func() {}, func(step) bool { return true }); first.Hit != -1 || first.Puts != -1 {
		t.Errorf("when the standby knew nothing its curves have %+v, want nothing", first)
	}
	w, i := writer(t, client.Config{Addresses: []string{primary.RPCAddress()}}), 0
	calls := func() {
		key := fmt.Sprint("k", i)
		put(t, w, key)
		if _, err := w.GetReplicaList(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		_, _ = w.GetReplicaList(t.Context(), key+"-not-there")
		i++
	}
	known := func(s step) bool { return s.Hit > 0 && s.Hit < 1 && s.Gets > 0 && s.Puts > 0 && s.P99 > 0 }
	before := standby.step("the primary's puts and hit rate", calls, known)
	primary.post("/understudy.v1.AdminService/Handover", "same-origin", url.Values{"term": {"1"}, "target_node_id": {standby.cfg.Node.ID}}, http.StatusOK)
	standby.becomes("/readyz", http.StatusOK, "OK")
	standby.step("what it had before it was primary", func() {}, func(s step) bool { return s.At == before.At && known(s) })
	standby.step("no put of its own", func() {}, func(s step) bool { return s.At > before.At && s.Puts == 0 })
	w.Close()
}
