package fleet

import (
	"context"
	"math"
	"testing"
)

func TestLayouts(t *testing.T) {
	o := Defaults()
	o.Objects, o.Clusters = 200_000, []int{1, 4}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	one, four := r.Cases[0], r.Cases[1]
	if one.Least != 200_000 || one.Most != 200_000 || one.Spread != 1 || math.Abs(one.HotReads-1) > 1e-9 || math.Abs(one.ByTenant-1) > 1e-9 || math.Abs(one.Moved-0.5) > 0.01 {
		t.Errorf("one cluster: got %+v, want all there, and half of it gone with a second one", one)
	}
	if four.Least < 49_000 || four.Most > 51_000 || four.HotReads < 1 || four.ByTenant < 1.1 || math.Abs(four.Moved-0.2) > 0.01 || four.Strayed != 0 {
		t.Errorf("four clusters: got %+v, want a quarter each, and a fifth gone with a fifth one", four)
	}
	// 1,000 hosts x (2,000 + 2 x 100 keys) in batches of 128 that all go to the only cluster.
	if calls := 1000 * 2200.0 / 128; math.Abs(one.CallsPerS-calls) > 1 || four.CallsPerS < 0.99*calls || four.Connections != 1000 {
		t.Errorf("%v and %v calls/s, want %v of each, since nearly each batch has keys of all four", one.CallsPerS, four.CallsPerS, calls)
	}
	if want := (one.CallsPerS*9 + 1000*(2000*1.1+100*6.8)) / 1e6; math.Abs(one.Processors-want) > 1e-9 {
		t.Errorf("%v processors, want %v", one.Processors, want)
	}
	if want := 200_000 * 170 / 1e9; math.Abs(one.GB-want) > 1e-9 {
		t.Errorf("%v GB, want %v", one.GB, want)
	}
}

func TestEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Defaults()); err == nil {
		t.Error("Run with its context ended: got no error, want one")
	}
}

func TestCheck(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no hosts": func(o *Options) { o.Hosts = 0 }, "no clusters": func(o *Options) { o.Clusters = nil }, "0 clusters": func(o *Options) { o.Clusters = []int{4, 0} },
		"no number": func(o *Options) { o.Reads = math.NaN() },
	} {
		o := Defaults()
		change(&o)
		if o.Check() == nil {
			t.Errorf("%s: got no fault, want one", name)
		}
	}
}
