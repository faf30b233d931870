package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
)

// An incident is something that a player meets, and what it must count it as.
type incident struct {
	name string
	lead func(t *testing.T, r *rig)
	want Violations
	text string // of the example; empty if nothing is to be counted
}

var incidents = []incident{
	{
		name: "nothing is wrong",
		lead: func(t *testing.T, r *rig) {
			for _, key := range r.keys {
				r.readBlock(key, r.get(key), r.clock())
			}
			look(t, r)
		},
	},
	{
		name: "a changed byte",
		lead: func(_ *testing.T, r *rig) {
			o := r.get(r.keys[0])
			r.spoil(o)
			r.readBlock(r.keys[0], o, r.clock())
		},
		want: Violations{WrongBytes: 1}, text: "is torn",
	},
	{
		name: "a changed byte, seen when the lease is over",
		lead: func(_ *testing.T, r *rig) {
			o := r.get(r.keys[0])
			r.spoil(o)
			o.Lease = client.Lease{}
			r.readBlock(r.keys[0], o, r.clock())
			r.checkHold(hold{r.keys[0], o}, r.block, r.scratch)
		},
	},
	{
		name: "the bytes of another object",
		lead: func(_ *testing.T, r *rig) {
			o := r.get(r.keys[0])
			o.Replicas = r.get(r.keys[1]).Replicas
			r.readBlock(r.keys[0], o, r.clock())
		},
		want: Violations{WrongBytes: 1}, text: "holds object",
	},
	{
		name: "a replica outside the segment",
		lead: func(_ *testing.T, r *rig) {
			o := r.get(r.keys[0])
			o.Replicas[0].Address += 1 << 30
			r.readBlock(r.keys[0], o, r.clock())
		},
		want: Violations{WrongBytes: 1}, text: "outside the segment",
	},
	{
		name: "a replica on a host that nobody knows",
		lead: func(_ *testing.T, r *rig) {
			o := r.get(r.keys[0])
			o.Replicas[0].Endpoint = "nobody:1"
			r.readBlock(r.keys[0], o, r.clock())
		},
		want: Violations{WrongBytes: 1}, text: "a host that does not exist",
	},
	{
		name: "a removed object that is back",
		lead: func(_ *testing.T, r *rig) {
			o := r.get(r.keys[0])
			r.judge.remove(o.ID, r.clock())
			r.readBlock(r.keys[0], o, r.clock()+1)
		},
		want: Violations{Resurrected: 1}, text: "was removed and is back",
	},
	{
		name: "an object that is removed while it is read",
		lead: func(_ *testing.T, r *rig) {
			o, asked := r.get(r.keys[0]), r.clock()
			r.judge.remove(o.ID, asked)
			r.readBlock(r.keys[0], o, asked)
		},
	},
	{
		name: "a block that changes while its lease holds",
		lead: func(_ *testing.T, r *rig) {
			o := r.get(r.keys[0])
			r.spoil(o)
			r.checkHold(hold{r.keys[0], o}, r.block, r.scratch)
		},
		want: Violations{BrokenLeases: 1}, text: "at the end of a lease",
	},
	{
		name: "an acknowledged put that is gone",
		lead: func(t *testing.T, r *rig) {
			if err := r.client.Remove(t.Context(), r.keys[7], client.Removal{}); err != nil {
				t.Fatal(err)
			}
			look(t, r)
		},
		want: Violations{LostPuts: 1}, text: "is gone: BatchGetReplicaList: OBJECT_NOT_FOUND",
	},
	{
		name: "another object in its place",
		lead: func(t *testing.T, r *rig) { r.judge.put(r.keys[7], r.get(r.keys[7]).ID+1); look(t, r) },
		want: Violations{LostPuts: 1}, text: "was put in its place",
	},
	{
		name: "an acknowledged put that is not readable",
		lead: func(t *testing.T, r *rig) {
			put, err := r.client.PutStart(t.Context(), client.PutItem{Key: "half", Size: 256}, client.PutConfig{})
			if err != nil {
				t.Fatal(err)
			}
			r.judge.put("half", put.ID)
			look(t, r)
		},
		want: Violations{LostPuts: 1}, text: "REPLICA_IS_NOT_READY",
	},
	{
		name: "a put that somebody removes",
		lead: func(t *testing.T, r *rig) {
			for range 3 { // leases may be in the way
				if err := r.remove(t.Context(), r.keys[7]); err != nil {
					t.Fatal(err)
				}
			}
			look(t, r)
		},
	},
	{
		name: "a put that somebody removes while it is looked for",
		lead: func(_ *testing.T, r *rig) {
			for _, p := range r.judge.expected() {
				r.judge.tryRemove(p.key)
				r.judge.lost(p, "")
			}
		},
	},
}

// Each promise that is broken is seen, counted once, and described; and what is
// allowed is not taken for one.
func TestViolations(t *testing.T) {
	for _, tt := range incidents {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, time.Minute)
			tt.lead(t, r)
			got := r.Result()
			if got.Violations != tt.want || got.Violations.Any() != (tt.text != "") {
				t.Errorf("counted %+v, want %+v: %q", got.Violations, tt.want, got.Examples)
			}
			if all := strings.Join(got.Examples, "\n"); !strings.Contains(all, tt.text) || (tt.text == "") != (all == "") {
				t.Errorf("described as %q, want %q", all, tt.text)
			}
		})
	}
}

func look(t *testing.T, r *rig) {
	t.Helper()
	if err := r.lookForPuts(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A lease that a reader keeps is looked at once more before it ends.
func TestHeldLeases(t *testing.T) {
	r := newRig(t, 300*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.holdLeases(ctx) }()
	defer func() { cancel(); <-done }()
	r.spoil(r.get(r.keys[1]))
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var spoilt client.Object
	held := 0
	for !r.Result().Violations.Any() {
		if !spoilt.Lease.Valid() { // once more: a busy machine may have looked too late
			r.holds <- hold{r.keys[0], r.get(r.keys[0])}
			spoilt = r.get(r.keys[1])
			r.holds <- hold{r.keys[1], spoilt}
			held++
		}
		select {
		case <-deadline:
			t.Fatal("got no violation, want one")
		case <-tick.C:
		}
	}
	if got := r.Result().Violations; got != (Violations{BrokenLeases: got.BrokenLeases}) || got.BrokenLeases > held {
		t.Errorf("got %+v, want a broken lease, and at most %d", got, held)
	}
}

// A new primary makes the player look for what was acknowledged, the first one
// does not.
func TestNewTermsAreVerified(t *testing.T) {
	r := newRig(t, time.Minute)
	if len(r.verify) != 0 {
		t.Fatal("the first primary: got objects to verify, want none")
	}
	r.next.Store(1)
	for _, term := range []uint64{1, 7, 7, 3} {
		r.meter.LeaderChanged(client.Leader{Term: term})
	}
	if len(r.verify) != 1 {
		t.Fatal("a new primary: got no objects to verify, want them verified")
	}
	r.judge.put("lost", 12345)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.verifyPuts(ctx) }()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for r.Result().Violations.LostPuts == 0 {
		select {
		case <-deadline:
			t.Fatal("got no violation, want one")
		case <-tick.C:
		}
	}
	cancel()
	<-done
}

func TestJudgeRemembersTheNewest(t *testing.T) {
	for _, tt := range []struct{ room, puts, want int }{
		{100, 3, 3}, {100, 5, 5}, {100, 12, 5}, {10, 9, 0}, {1 << 20, 5000, maxRemembered},
	} {
		j := newJudge(tt.room)
		for i := range tt.puts {
			j.put(fmt.Sprint(i), client.ObjectID(i))
		}
		got := map[string]bool{}
		for _, p := range j.expected() {
			got[p.key] = true
		}
		if len(got) != tt.want {
			t.Errorf("room %d: %d of %d puts are remembered, want %d", tt.room, len(got), tt.puts, tt.want)
		}
		for i := tt.puts - tt.want; i < tt.puts; i++ {
			if !got[fmt.Sprint(i)] {
				t.Errorf("room %d: put %d of %d is forgotten, want it kept", tt.room, i, tt.puts)
			}
		}
	}
}

func TestExamplesAreBounded(t *testing.T) {
	j := newJudge(100)
	for range 100 {
		j.violation(&j.broken.WrongBytes, "text")
	}
	if v, examples := j.verdict(); v.WrongBytes != 100 || len(examples) != maxExamples {
		t.Errorf("got %+v with %d examples, want 100 wrong bytes with %d", v, len(examples), maxExamples)
	}
}

// The replay goes on without the cluster, and ends with what it cannot explain.
func TestTolerated(t *testing.T) {
	w := &worker{}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for kind, want := range map[errs.Kind]bool{
		errs.Unavailable: true, errs.Unresolved: true, errs.NotLeader: true, errs.Internal: false, errs.InvalidParams: false,
	} {
		err := errs.New(kind, "test", "text")
		if got := w.tolerate(t.Context(), err); (got == nil) != want {
			t.Errorf("%v: got error %v, want it tolerated: %t", kind, got, want)
		}
		if got := w.tolerate(ended, err); !errors.Is(got, context.Canceled) {
			t.Errorf("%v at the end: got error %v, want %v", kind, got, context.Canceled)
		}
	}
	for _, kind := range []errs.Kind{errs.ObjectNotFound, errs.ObjectHasLease, errs.ReplicaNotReady} {
		if err := w.tolerateMissing(t.Context(), errs.New(kind, "test", "text")); err != nil {
			t.Errorf("a removal that meets %v: got error %v, want none", kind, err)
		}
	}
}
