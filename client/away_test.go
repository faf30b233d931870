package client_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
)

// That one cluster has keys can be told, and made use of, though another one is away.
func TestBatchExistKeyWhileAClusterIsAway(t *testing.T) {
	t.Parallel()
	east, west := newNamed(t, "east"), newNamed(t, "west")
	c := connectTwo(t, east.addresses(), west.addresses())
	for i, id := range []string{"east", "west"} {
		if err := c.MountSegment(t.Context(), id, memory(uint64(i+1)<<32)); err != nil {
			t.Fatal(err)
		}
	}
	keys := numbered(50)
	putAll(t, c, keys)
	west.nodes[0].stop()
	begun := time.Now()
	found, err := c.BatchExistKey(soon(t, 20*time.Second), append(keys, "missing-a", "missing-b", "missing-c"))
	wantKind(t, "the batch", err, errs.OK)
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %v, want half of a lease, which is 10 s", took)
	}
	answers := make(map[errs.Kind]int)
	for i, e := range found[:len(keys)] {
		if answers[errs.KindOf(e.Err)]++; e.Err == nil && !e.Exists {
			t.Errorf("%s: got that it does not exist, want that it does", keys[i])
		}
	}
	if answers[errs.OK] == 0 || answers[errs.Unavailable] == 0 || len(answers) > 2 {
		t.Errorf("got the answers %v, want some keys that exist, and some that are unavailable", answers)
	}
}

// What one cluster has found can be read though another one is away.
func TestBatchReadWhileAClusterIsAway(t *testing.T) {
	t.Parallel()
	east, west := newNamed(t, "east"), newNamed(t, "west")
	f := newFront(t, east.nodes[0].address)
	c := connectTwo(t, []string{f.address}, west.addresses())
	for i, id := range []string{"east", "west"} {
		if err := c.MountSegment(t.Context(), id, memory(uint64(i+1)<<32)); err != nil {
			t.Fatal(err)
		}
	}
	keys := numbered(50)
	putAll(t, c, keys)
	f.answering(func(_ string, _, resp proto.Message, err error) (proto.Message, error) {
		if r, ok := resp.(*pb.BatchGetReplicaListResponse); ok {
			r.LeaseTtlMs = 6000
		}
		return resp, err
	})
	west.nodes[0].stop()
	var away *client.Client
	for id, one := range c.All() {
		if id == "west" {
			away = one
		}
	}
	found, err := c.BatchGetReplicaList(t.Context(), keys)
	wantKind(t, "the batch", err, errs.OK)
	for i := range found {
		want := errs.OK
		if c.Of(keys[i]) == away {
			want = errs.Unavailable
		}
		wantKind(t, keys[i], found[i].Err, want)
		if want == errs.OK && !found[i].Lease.Valid() {
			t.Errorf("%s: its lease has ended, want one that holds", keys[i])
		}
	}
}
