package promote

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// FuzzRecords writes any bytes to the keys of etcd outside of the journal, and to a node's
// memory of its cluster. Unreadable values are handled as specified, and none crashes a node.
func FuzzRecords(f *testing.F) {
	for _, record := range []any{
		Leader{NodeID: "a", RPC: "a:1", Term: 3, State: Serving}, Leader{Term: metadata.MaxTerm},
		NodeInfo{ID: "a", Role: Primary, Promotable: true, Formats: [2]int{1, 2}, Settings: `{"x":1}`},
		TermRecord{Term: 1, NodeID: "a", Began: "2026-01-02T03:04:05Z", Ended: "x", Left: math.MaxInt64, Gap: 7, GapAtLeast: true},
		CompleteNode{ID: "a", Term: 2, Seq: 3}, Pause{NodeID: "a", For: "30m"}, Pause{For: "-2562047h47m16.854775807s"},
		memory{At: map[string]string{"a": "a:1"}, Primary: "a", Term: 2}, place{3, 4, 1}, place{math.MaxUint64, -4, -1},
		Witness{ID: "w", HTTP: "w:1", EtcdBytes: math.MaxUint64}, forgottenNode{Term: 3, Seq: 9},
	} {
		b, err := json.Marshal(record)
		if err != nil {
			f.Fatal(err)
		}
		f.Add("7", b, b)
	}
	f.Add("", []byte(`{"complete":null,"node_id":{}}`), []byte("\xff"))
	layout := journal.NewLayout("/u", "c")
	f.Fuzz(func(t *testing.T, id string, one, other []byte) {
		kvs := func(prefix string) []*mvccpb.KeyValue {
			return []*mvccpb.KeyValue{{Key: []byte(prefix + id), Value: one, ModRevision: 1, Lease: 1}, {Key: []byte(prefix + "9"), Value: other, ModRevision: 2}}
		}
		if l, there := leaderOf(kvs(layout.Leader())); !there || l.unreadable && (l.NodeID != "" || l.Term != 0) {
			t.Fatalf("a leader key that is there: got %+v, there: %v; want it there, and empty if it cannot be read", l, there)
		}
		n := &Node{Config: Config{Layout: layout, Clock: clock.Boot()}}
		if left := n.pauseLeft(pauseOf(kvs(layout.Pause()))); left < 0 || left > MaxPause {
			t.Fatalf("%s: a pause lasts for %v, want at most %v", one, left, MaxPause)
		}
		nodes := nodesOf(kvs(layout.Nodes()))
		_ = allRead(nodes, 1)
		list := n.completeOf(kvs(layout.Complete()))
		if len(list) != 2 || list[0].ID != id {
			t.Fatalf("the complete nodes are %v, want two, and %q", list, id)
		}
		_, _ = list.String(), list.help()
		terms := termsOf(layout, kvs(layout.Terms()))
		if len(terms) != 2 || terms[0].Term != 9 {
			t.Fatalf("the terms are %+v, want two, and 9", terms)
		}
		_ = reason(journal.Head{Seq: 1}, Leader{}, false)
		c := new(companions)
		_ = c.recall("", one)
		m := c.known()
		if _, err := json.Marshal(m); err != nil {
			t.Fatalf("writing down what is known of the cluster: got %v, want no error", err)
		}
		_ = c.descent(m.History)
		checkOthers(t, n, kvs, id, m)
		var _ metadata.Term = m.Term
		_ = time.Duration(terms[1].Gap)
	})
}

// checkOthers reads records of witnesses, of state files, and of nodes that were given up.
func checkOthers(t *testing.T, n *Node, kvs func(prefix string) []*mvccpb.KeyValue, id string, m memory) {
	if witnesses := witnessesOf(kvs(n.Layout.Witnesses())); len(witnesses) > 2 {
		t.Fatalf("the witnesses are %+v, want two at most", witnesses)
	}
	forgotten := kvs(n.Layout.Forgotten())
	if n.wasForgotten(forgotten, id+"x", m) {
		t.Fatal("a record of other nodes: got this node given up by it, want that only by its own record")
	}
	_ = n.wasForgotten(forgotten, id, m)
	r, saved := newRetention(n), kvs(n.Layout.Saved())
	for range 2 {
		useless := r.keepFor(saved, nil, journal.Head{Seq: 5, Bytes: 100})
		for _, kv := range saved {
			var file place
			of := strings.TrimPrefix(string(kv.Key), n.Layout.Saved())
			if unread := json.Unmarshal(kv.Value, &file) != nil; unread != slices.Contains(useless, of) && id != "9" {
				t.Fatalf("the record %s of %q is of no use: %v, want %v", kv.Value, of, !unread, unread)
			}
			if r.from > r.saved {
				t.Fatalf("got the journal kept from revision %d on, want it from %d on at least, where the files lead",
					r.from, r.saved)
			}
		}
	}
}
