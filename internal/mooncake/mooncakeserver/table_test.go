package mooncakeserver

import (
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/internal/service"
)

// What a large answer was made of is not kept for the next call: a request of a few bytes may
// have found 256 MiB.
func TestLargeResultsAreNotKept(t *testing.T) {
	g, _ := mooncake.NewGeneration(mooncake.Names()[0])
	tab := &table{functions: make(map[uint32]*function)}
	type result = mooncake.Result[[]mooncake.KeyedReplicas]
	small, large, kept, found := make(map[*result]bool), make(map[*result]bool), false, 0
	handle(tab, g.GetReplicaListByRegex, func(_ call, _ *args, r *result) error {
		if large[r] {
			t.Error("the result of a large answer: got it used again, want it dropped: it may hold 256 MiB")
		}
		kept = kept || small[r]
		if small[r] = true; found > 1 {
			large[r] = true
		}
		r.Value = make([]mooncake.KeyedReplicas, found)
		for i := range r.Value {
			r.Value[i].Key = strings.Repeat("k", 1000)
		}
		return nil
	})
	f := tab.functions[g.GetReplicaListByRegex.ID]
	body := string(structpack.Pack(new(structpack.Writer), nil, g.GetReplicaListByRegex.Args, &args{Key: "k"}))
	c := call{session: &session{front: new(Front), table: tab}, master: new(service.Master)}
	for range 100 { // a pool may forget what it was given
		for _, found = range []int{1, 1, 100} {
			if _, err := f.serve(c, body, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !kept {
		t.Error("results of small answers: got none used again, want some kept")
	}
}
