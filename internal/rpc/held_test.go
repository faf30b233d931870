package rpc

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// While an older node is there the state keeps no claims, so nobody knows for how long
// unmounted memory is in use: no answer says that it is free.
func TestHeldUnderTheFirstRules(t *testing.T) {
	s := metadata.New(metadata.Options{})
	m := &service.Master{Store: s}
	if ms := heldMs(m); ms != nil {
		t.Errorf("under the first rules: got %d ms, want no time", *ms)
	}
	params := metadata.Params{LeaseTTL: time.Second, DiscardTimeout: time.Second, ReleaseTimeout: time.Second}
	if _, err := s.Apply(&metadata.Commit{Seq: 1, Term: 1, Changes: []metadata.Change{
		&metadata.TermStart{Term: 1, Params: params}, &metadata.UseRules{Version: metadata.NewestRules},
	}}, nil); err != nil {
		t.Fatal(err)
	}
	if ms := heldMs(m); ms == nil || *ms != 0 {
		t.Errorf("under the newest rules, without claims: got %v, want 0 ms", ms)
	}
}
