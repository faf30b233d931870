package judge

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// want demands that a tally has exactly these violations, described with a text.
func (t *tally) want(tt *testing.T, want map[string]int, text string) {
	tt.Helper()
	v := t.verdict(Verdict{})
	maps.DeleteFunc(v.Violations, func(_ string, n int) bool { return n == 0 })
	if all := strings.Join(v.Examples, "\n"); !maps.Equal(v.Violations, want) || !strings.Contains(all, text) {
		tt.Errorf("got violations %v, described as %q; want %v and %q", v.Violations, all, want, text)
	}
}

func TestRanges(t *testing.T) {
	const live, reservedState, quarantined = pb.RangeState_RANGE_STATE_LIVE, pb.RangeState_RANGE_STATE_RESERVED, pb.RangeState_RANGE_STATE_QUARANTINED
	segment := func(id string, base uint64) *pb.Segment {
		return &pb.Segment{Id: id, Base: base, Size: 100, Endpoint: "e"}
	}
	ranges := func(state pb.RangeState, at ...uint64) (list []*pb.Range) {
		for i := 0; i < len(at); i += 2 {
			list = append(list, &pb.Range{State: state, Offset: at[i], Length: at[i+1], ObjectId: at[i] + 1, Key: "k/"})
		}
		return list
	}
	run := func(s *pb.Segment, r []*pb.Range) *pb.DumpRangesResponse {
		return &pb.DumpRangesResponse{Segment: s, Ranges: r}
	}
	one, two := segment("one", 1000), segment("two", 2000)
	for _, tt := range []struct {
		name string
		runs []*pb.DumpRangesResponse
		want map[string]int
		text string
	}{
		{"disjoint", []*pb.DumpRangesResponse{
			run(one, ranges(live, 0, 10, 10, 10)), run(one, ranges(quarantined, 20, 80)), run(two, ranges(reservedState, 0, 100)),
		}, nil, ""},
		{"overlapping", []*pb.DumpRangesResponse{run(one, ranges(live, 0, 11, 10, 10))}, map[string]int{"A": 1}, "overlap"},
		{"overlapping from run to run", []*pb.DumpRangesResponse{run(one, ranges(live, 0, 20)), run(one, ranges(quarantined, 19, 1))}, map[string]int{"A": 1}, "in quarantine overlap"},
		{"overlapping in any order", []*pb.DumpRangesResponse{run(one, nil), run(two, nil), run(one, ranges(live, 50, 10)), run(one, ranges(live, 40, 11))}, map[string]int{"A": 1}, "overlap"},
		{"beyond the end", []*pb.DumpRangesResponse{run(one, ranges(live, 90, 11))}, map[string]int{"A": 1}, "outside segment one"},
		{"beyond all ends", []*pb.DumpRangesResponse{run(one, ranges(live, 90, 1<<64-10))}, map[string]int{"A": 1}, "outside"},
		{"the same memory twice", []*pb.DumpRangesResponse{run(one, nil), run(segment("three", 1099), nil)}, map[string]int{"A": 1}, "same memory"},
		{"an object that was removed", []*pb.DumpRangesResponse{run(one, ranges(live, 70, 10))}, map[string]int{"X": 1}, "although it was removed"},
		{"the memory of an object that was removed", []*pb.DumpRangesResponse{run(one, ranges(quarantined, 70, 10))}, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i := inspection{node: "a", tally: new(tally), dead: graves{"k/": {given: map[client.ObjectID]time.Duration{71: 1}}}}
			for _, r := range tt.runs {
				i.run(r)
			}
			i.judge()
			i.tally.want(t, tt.want, tt.text)
		})
	}
}

// Nodes that differ, or do not answer, break S.
func TestNodesThatDiffer(t *testing.T) {
	var nodes []Node
	for i := range byte(2) {
		n := run(t, config.Primary, "", nil)
		n.serves()
		mount(t, n, client.Segment{ID: [16]byte{1 + i}, Name: "h", Base: 1 << 20, Size: 1 << 20, Endpoint: "h:1"})
		nodes = append(nodes, Node{"node", n.RPCAddress()})
	}
	found := new(tally)
	if err := judgeNodes(t.Context(), nodes, nil, found); err != nil {
		t.Fatal(err)
	}
	found.want(t, map[string]int{"S": 1}, "at sequence ")
	if v, err := Compare(t.Context(), nodes); err != nil || v.OK || v.Violations["S"] != 1 {
		t.Errorf("S: nodes that differ: got %+v, %v; want one violation", v, err)
	}
	if v, err := Compare(t.Context(), nodes[:1]); err != nil || !v.OK || len(v.Violations) != 2 {
		t.Errorf("S: a node alone: got %+v, %v; want OK, with A and S checked", v, err)
	}
	silent := new(tally)
	if err := judgeNodes(t.Context(), []Node{{"nobody", "127.0.0.1:1"}}, nil, silent); err != nil {
		t.Fatal(err)
	}
	silent.want(t, map[string]int{"S": 1}, "node nobody has no digest")
}

// A load sees nodes that differ while it works, before they have loaded a snapshot.
func TestStatesAreCompared(t *testing.T) {
	l := newBench().load
	for i := range byte(2) {
		n := run(t, config.Primary, "", nil)
		n.serves()
		mount(t, n, client.Segment{ID: [16]byte{1 + i}, Name: "h", Base: 1 << 20, Size: 1 << 20, Endpoint: "h:1"})
		l.peers = append(l.peers, peer{Node{"node", n.RPCAddress()}, n.admin})
	}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { defer close(done); l.compareStates(ctx) }()
	wait(t, "the broken S is counted", func() bool { return l.seen.verdict(Verdict{}).Violations[S] > 0 })
	cancel()
	<-done
}

// mount mounts a segment, and leaves it.
func mount(t *testing.T, n *member, s client.Segment) {
	t.Helper()
	c, err := client.New(client.Config{Addresses: []string{n.RPCAddress()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.MountSegment(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// A journal that was written by a node is sound; one whose head jumps is not.
func TestJournal(t *testing.T) {
	etcd := etcdtest.Start(t)
	layout := journal.NewLayout("/understudy", "mooncake_cluster")
	look := func(least int) *tally {
		t.Helper()
		found := new(tally)
		n, err := judgeJournal(t.Context(), etcd.Endpoints(), layout, found)
		if err != nil || n < least || least == 0 && n > 0 {
			t.Fatalf("got %d commits and error %v, want at least %d commits", n, err, least)
		}
		return found
	}
	look(0).want(t, nil, "") // nothing was ever written
	n := run(t, config.Primary, "a", etcd.Endpoints())
	n.serves()
	mount(t, n, client.Segment{ID: [16]byte{1}, Name: "h", Base: 1 << 20, Size: 1 << 20, Endpoint: "h:1"})
	look(2).want(t, nil, "") // the term, and the segment
	n.end()

	kv := etcd.Client(t)
	resp, err := kv.Get(t.Context(), layout.Head())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Compact(t.Context(), resp.Kvs[0].ModRevision); err != nil {
		t.Fatal(err)
	}
	look(0).want(t, nil, "") // only the end is left
	head := string(resp.Kvs[0].Value)
	was, err := journal.DecodeHead(resp.Kvs[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	jump(t, kv, layout, head, was.Seq, was.Seq+2)
	look(0).want(t, map[string]int{"D": 1}, "the head moves from")
}

func jump(t *testing.T, kv *clientv3.Client, layout journal.Layout, head string, from, to metadata.Seq) {
	t.Helper()
	moved := strings.Replace(head, `"sequence":`+strconv.FormatUint(uint64(from), 10), `"sequence":`+strconv.FormatUint(uint64(to), 10), 1)
	if moved == head {
		t.Fatalf("the head %s: got no sequence %d, want it", head, from)
	}
	if _, err := kv.Put(t.Context(), layout.Head(), moved); err != nil {
		t.Fatal(err)
	}
}

func TestAudit(t *testing.T) {
	id := metadata.NewObjectID(2, 1)
	put := &metadata.PutStart{ID: id, Key: "k"}
	remove := func(request uint64) metadata.Change {
		return &deleteevents.Event{Type: deleteevents.Remove, Removals: []*metadata.Removal{{Ref: metadata.Ref{ID: id}, Request: request}}}
	}
	commit := func(seq metadata.Seq, term metadata.Term, changes ...metadata.Change) *metadata.Commit {
		return &metadata.Commit{Seq: seq, Term: term, Changes: changes}
	}
	for _, tt := range []struct {
		name    string
		commits []*metadata.Commit
		want    map[string]int
		text    string
	}{
		{"sound", []*metadata.Commit{commit(1, 2, put), commit(2, 2, remove(1)), commit(3, 3)}, nil, ""},
		{"a term that goes back", []*metadata.Commit{commit(1, 3), commit(2, 2)}, map[string]int{"F": 1}, "behind one of term 3"},
		{"a reservation of another term", []*metadata.Commit{commit(1, 3, put)}, map[string]int{"F": 1}, "id of term 2"},
		{"two reservations", []*metadata.Commit{commit(1, 2, put), commit(2, 2, put)}, map[string]int{"V": 1}, "commits 1 and 2"},
		{"one removal twice", []*metadata.Commit{commit(1, 2, remove(5)), commit(2, 2, remove(6), remove(5))}, map[string]int{"V": 1}, "request 5"},
		{"two removals", []*metadata.Commit{commit(1, 2, remove(5), remove(6))}, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found := new(tally)
			a := newAudit(metadata.Seq(len(tt.commits)), 1, found)
			for i, c := range tt.commits {
				err := a.Commit(c, journal.Cursor{Head: journal.Head{Seq: c.Seq}})
				if last := i == len(tt.commits)-1; errors.Is(err, errAudited) != last {
					t.Errorf("commit %d: got error %v, want the end of the audit: %t", c.Seq, err, last)
				}
			}
			found.want(t, tt.want, tt.text)
		})
	}
}

// Without etcd the judge has no verdict.
func TestNoEtcd(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := judgeJournal(ctx, []string{"127.0.0.1:1"}, journal.NewLayout("/u", "c"), new(tally)); err == nil {
		t.Error("got no error without an etcd, want one")
	}
}
