package segment

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/understudy-store/understudy/internal/ordered"
)

func mount(t *testing.T, p *Pool, number Number, name string, size uint64) *Segment {
	t.Helper()
	spec := Spec{ID: ID{byte(number), byte(number >> 8)}, Name: name, Base: 1 << 20, Size: size, Endpoint: name + ":1"}
	if err := spec.Validate(); err != nil {
		t.Fatal(err)
	}
	s := New(spec, number)
	p.Add(s)
	return s
}

func names(placed []Allocation) []string {
	var out []string
	for _, p := range placed {
		out = append(out, p.Segment.Name)
	}
	return out
}

func strategies(t *testing.T, run func(t *testing.T, p *Pool)) {
	for name, strategy := range map[string]Strategy{"random": Random, "free_ratio_first": FreeRatioFirst} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, 7))
			run(t, NewPool(strategy, rng.IntN))
		})
	}
}

func TestReplicasOnDistinctNames(t *testing.T) {
	strategies(t, func(t *testing.T, p *Pool) {
		for i, name := range []string{"a", "a", "a", "b", "b", "c"} {
			mount(t, p, Number(i+1), name, 1<<20)
		}
		for range 100 {
			got := names(p.Allocate(nil, Request{Size: 100, Replicas: 3}))
			slices.Sort(got)
			if !slices.Equal(got, []string{"a", "b", "c"}) {
				t.Fatalf("got three replicas on %v, want each on another name: a, b, c", got)
			}
		}
	})
}

func TestFewerSegmentsThanReplicas(t *testing.T) {
	strategies(t, func(t *testing.T, p *Pool) {
		if got := p.Allocate(nil, Request{Size: 1, Replicas: 1}); len(got) != 0 {
			t.Fatalf("an empty pool: got %v placed, want nothing", got)
		}
		mount(t, p, 1, "a", 1<<10)
		if got := p.Allocate(nil, Request{Size: 100, Replicas: 2}); len(got) != 1 {
			t.Fatalf("one segment and two replicas: placed %d, want 1 (behaviours check 12)", len(got))
		}
		if got := p.Allocate(nil, Request{Size: 1 << 20, Replicas: 1}); len(got) != 0 {
			t.Fatalf("1 MiB with a segment of 1 KiB: got %d placed, want none", len(got))
		}
	})
}

// A list of preferred names is looked at only until everything is placed.
func TestPreferredSegmentsBeyondTheNeed(t *testing.T) {
	var asked []int // among how many a choice was made
	p := NewPool(Random, func(n int) int {
		asked = append(asked, n)
		return 0
	})
	for i, name := range []string{"a", "b", "b", "c"} {
		mount(t, p, Number(i+1), name, 1<<20)
	}
	got := names(p.Allocate(nil, Request{Size: 100, Replicas: 1, Preferred: []string{"a", "b", "b"}}))
	if !slices.Equal(got, []string{"a"}) || !slices.Equal(asked, []int{3}) {
		t.Errorf("got it placed on %v after choices among %v, want on a after one choice among 3", got, asked)
	}
}

func TestPreferredSegments(t *testing.T) {
	strategies(t, func(t *testing.T, p *Pool) {
		mount(t, p, 1, "a", 1<<20)
		full := mount(t, p, 2, "b", 1<<10)
		mount(t, p, 3, "c", 1<<20)
		for range 5 {
			if got := names(p.Allocate(nil, Request{Size: 100, Replicas: 1, Preferred: []string{"b"}})); !slices.Equal(got, []string{"b"}) {
				t.Fatalf("a preferred segment b with room: placed on %v, want b (check 20)", got)
			}
		}
		for full.Busy() < full.Capacity() {
			if _, ok := full.Allocate(1); !ok {
				break
			}
		}
		got := names(p.Allocate(nil, Request{Size: 100, Replicas: 1, Preferred: []string{"b", "nowhere"}}))
		if len(got) != 1 || got[0] == "b" {
			t.Fatalf("a full preferred segment: placed on %v, want a fallback (check 21)", got)
		}
		got = names(p.Allocate(nil, Request{Size: 100, Replicas: 2, Preferred: []string{"c", "a"}}))
		if !slices.Equal(got, []string{"c", "a"}) {
			t.Fatalf("preferring c, then a, for two replicas: placed on %v, want c and a in this order", got)
		}
	})
}

// Full segments are skipped: conformance line 68.
func TestFullSegmentsAreSkipped(t *testing.T) {
	strategies(t, func(t *testing.T, p *Pool) {
		for i := range Number(20) {
			mount(t, p, i+1, string(rune('a'+i)), 64)
		}
		room := mount(t, p, 99, "room", 1<<20)
		for range 50 {
			got := p.Allocate(nil, Request{Size: 1000, Replicas: 1})
			if len(got) != 1 || got[0].Segment != room {
				t.Fatalf("placed on %v, want the only segment with room", names(got))
			}
		}
		p.Remove(room)
		if got := p.Allocate(nil, Request{Size: 1000, Replicas: 1}); len(got) != 0 {
			t.Fatalf("a segment was removed: placed on %v, want nothing placed on it (check 68)", names(got))
		}
		if n := p.view().Len(); n != 20 {
			t.Fatalf("a segment was removed: got %d names left, want 20", n)
		}
	})
}

func TestProbesAreBounded(t *testing.T) {
	p := NewPool(Random, func(int) int { return 0 })
	for i := range Number(300) {
		inPieces(t, mount(t, p, i+1, string(rune('a'+i)), 4<<10))
	}
	a := attempt{pool: p, groups: p.view(), req: Request{Size: 2 << 10, Replicas: 1}}
	a.tryFrom(0)
	if a.probes != maxProbes {
		t.Errorf("%d segments probed, want %d", a.probes, maxProbes)
	}
}

// inPieces fills a segment of 4 KiB and frees half of it, in two pieces.
func inPieces(t *testing.T, s *Segment) {
	t.Helper()
	for i := range 4 {
		r, ok := s.Allocate(1 << 10)
		if !ok {
			t.Fatalf("a segment of 4 KiB: got no room for range %d of 1 KiB, want room for 4", i)
		}
		if i%2 == 0 {
			defer func() {
				if err := s.Free(r); err != nil {
					t.Error(err)
				}
			}()
		}
	}
}

// Whoever lends very many segments that are full, or too small, does not hide those of
// others; so many names at most are looked at.
func TestManyNamesWithoutRoom(t *testing.T) {
	p := NewPool(Random, nil)
	for i := range Number(4 * maxProbes) {
		size := uint64(1024)
		if i%2 == 0 {
			size = MinSize
		}
		if s := mount(t, p, i+1, fmt.Sprint("a", i), size); size == 1024 && !fill(s) {
			t.Fatal("a segment of 1 KiB: got it not filled, want it full for this test")
		}
	}
	mount(t, p, 10*maxProbes, "b", 1<<20)
	for range 50 {
		if got := p.Allocate(nil, Request{Size: 1024, Replicas: 1}); len(got) != 1 || got[0].Segment.Name != "b" {
			t.Fatalf("placed on %v, want the segment that has room", names(got))
		}
	}
	a := attempt{pool: p, groups: &groups{ordered.NewMap[string, group]()}, req: Request{Size: 1, Replicas: 1}}
	for i := range 2 * maxLooks {
		a.groups.Set(fmt.Sprint(i), group{room: newRoom()})
	}
	a.tryFrom(maxLooks / 2) // and from the first name on, after the last
	if a.looks != maxLooks {
		t.Errorf("%d names looked at, want %d", a.looks, maxLooks)
	}
}

// A host with very many full segments does not hide one that is empty, whether
// it is preferred or not.
func TestManySegmentsUnderOneName(t *testing.T) {
	p := NewPool(Random, nil)
	for i := range Number(2 * maxProbes) {
		if s := mount(t, p, i+1, "full", 1024); !fill(s) {
			t.Fatal("a segment of 1 KiB: got it not filled, want it full for this test")
		}
	}
	mount(t, p, 10*maxProbes, "empty", 1<<20)
	for _, preferred := range [][]string{{"full"}, nil} {
		for range 50 {
			if got := p.Allocate(nil, Request{Size: 1024, Replicas: 1, Preferred: preferred}); len(got) != 1 || got[0].Segment.Name != "empty" {
				t.Fatalf("preferring %q: placed on %v, want the one that is empty", preferred, names(got))
			}
		}
	}
}

func fill(s *Segment) bool {
	_, ok := s.Allocate(s.Capacity())
	return ok
}

// Names that are preferred and full take nothing from the rest.
func TestManyPreferredNames(t *testing.T) {
	p := NewPool(Random, nil)
	var full []string
	for i := range Number(maxProbes - 1) {
		s := mount(t, p, i+1, "full"+string(rune('a'+i)), 1024)
		fill(s)
		full = append(full, s.Name)
	}
	for i := range Number(20) {
		mount(t, p, 1000+i, "empty"+string(rune('a'+i)), 1<<20)
	}
	found := 0
	for range 50 {
		found += len(p.Allocate(nil, Request{Size: 1024, Replicas: 1, Preferred: full}))
	}
	if found != 50 {
		t.Errorf("preferring names that are full: got room for %d of 50, want all 50 on the names that are empty", found)
	}
}

// However many names a put prefers, they are all tried.
func TestLastOfManyPreferredNames(t *testing.T) {
	p := NewPool(Random, nil)
	var preferred []string
	for i := range Number(2 * maxProbes) {
		s := mount(t, p, i+1, fmt.Sprint("full", i), 1024)
		fill(s)
		preferred = append(preferred, s.Name)
	}
	mount(t, p, 1000, "roomy", 1<<20)
	mount(t, p, 1001, "wanted", 1<<20)
	for range 50 {
		got := p.Allocate(nil, Request{Size: 1024, Replicas: 1, Preferred: append(preferred, "wanted")})
		if len(got) != 1 || got[0].Segment.Name != "wanted" {
			t.Fatalf("preferring many full names and then one with room: placed on %v, want that one", names(got))
		}
	}
}

func TestFreeRatioFirstPrefersEmptySegments(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	p := NewPool(FreeRatioFirst, rng.IntN)
	for i := range Number(8) {
		s := mount(t, p, i+1, string(rune('a'+i)), 1<<20)
		if i != 5 {
			s.Allocate(1 << 19)
		}
	}
	hits := 0
	for range 100 {
		got := p.Allocate(nil, Request{Size: 64, Replicas: 1})
		if got[0].Segment.Name == "f" {
			hits++
		}
	}
	// Six samples of eight names find the empty one with 1-(7/8)^6 = 55 %.
	if hits < 35 {
		t.Errorf("the empty segment was chosen %d times of 100, want 35 at least", hits)
	}
}

func TestSSDFreeRatioFirstPrefersEmptySSDs(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	p := NewPool(SSDFreeRatioFirst, rng.IntN)
	empty := ClientID{6}
	p.FreeOnSSD = func(c ClientID) float64 {
		if c == empty {
			return 0.9
		}
		return 0.1
	}
	for i := range Number(8) {
		spec := Spec{ID: ID{byte(i + 1)}, Name: string(rune('a' + i)), Size: 1 << 20, Base: 1 << 30, Client: ClientID{byte(i + 1)}}
		p.Add(New(spec, i+1))
	}
	hits := 0
	for range 100 {
		if p.Allocate(nil, Request{Size: 64, Replicas: 1})[0].Segment.Client == empty {
			hits++
		}
	}
	if hits < 35 { // as above
		t.Errorf("the segment whose owner's SSD is empty was chosen %d times of 100, want 35 at least", hits)
	}
}

func TestSpecs(t *testing.T) {
	good := Spec{ID: ID{1}, Name: "n", Base: 1000, Size: 1000, Endpoint: "e"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Spec){
		"no id":     func(s *Spec) { s.ID = ID{} },
		"no name":   func(s *Spec) { s.Name = "" },
		"no base":   func(s *Spec) { s.Base = 0 },
		"no size":   func(s *Spec) { s.Size = 0 },
		"too large": func(s *Spec) { s.Size = MaxSize + 1 },
		"wraps":     func(s *Spec) { s.Base = ^uint64(0) - 10 },
	} {
		s := good
		change(&s)
		if s.Validate() == nil {
			t.Errorf("%s: got a valid spec, want it refused", name)
		}
	}
	for name, tc := range map[string]struct {
		other Spec
		want  bool
	}{
		"same":          {good, true},
		"inside":        {Spec{Base: 1500, Size: 1, Endpoint: "e"}, true},
		"touching":      {Spec{Base: 2000, Size: 10, Endpoint: "e"}, false},
		"other machine": {Spec{Base: 1000, Size: 1000, Endpoint: "f"}, false},
	} {
		if got := good.SamePlace(tc.other); got != tc.want {
			t.Errorf("%s: SamePlace = %v, want %v", name, got, tc.want)
		}
	}
}

func BenchmarkPoolAllocate(b *testing.B) {
	p := NewPool(Random, nil)
	for i := range Number(128) {
		p.Add(New(Spec{ID: ID{byte(i)}, Name: string(rune('a' + i)), Base: 1, Size: 1 << 30}, i+1))
	}
	var buf [4]Allocation
	b.ReportAllocs()
	for b.Loop() {
		got := p.Allocate(buf[:0], Request{Size: 32 << 10, Replicas: 1})
		if len(got) != 1 {
			b.Fatalf("got %d placed, want 1: the pool has room", len(got))
		}
		if err := got[0].Segment.Free(got[0].Range); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFullHost allocates on a preferred host with 10,000 segments, all of them full or
// in pieces, and then elsewhere.
func BenchmarkFullHost(b *testing.B) {
	for name, pieces := range map[string]bool{"full": false, "in pieces": true} {
		b.Run(name, func(b *testing.B) {
			p := NewPool(Random, nil)
			for i := range Number(10_000) {
				s := New(Spec{Name: "full", Size: 64 << 10}, i+1)
				p.Add(s)
				var taken []Range
				for fits := true; fits; {
					var r Range
					if r, fits = s.Allocate(16 << 10); fits {
						taken = append(taken, r)
					}
				}
				for j, r := range taken {
					if pieces && j%2 == 0 {
						_ = s.Free(r)
					}
				}
			}
			p.Add(New(Spec{Name: "free", Size: 1 << 30}, 20_000))
			var buf [1]Allocation
			b.ReportAllocs()
			for b.Loop() {
				got := p.Allocate(buf[:0], Request{Size: 32 << 10, Replicas: 1, Preferred: []string{"full"}})
				if len(got) != 1 {
					b.Fatalf("got %d placed, want 1 on the host that is free", len(got))
				}
				if err := got[0].Segment.Free(got[0].Range); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What an allocation sees does not change when segments come and go, in whatever order; what
// comes next sees what is there.
func TestViewsDoNotChange(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	p, there := NewPool(Random, nil), make(map[*Segment]bool)
	look := func(g *groups) map[*Segment]bool {
		seen := make(map[*Segment]bool)
		g.Scan(func(name string, g group) bool {
			for _, s := range g.segments {
				if s.Name != name || seen[s] {
					t.Fatalf("got segment %d of %s under the name %s, or twice; want it once, under its own name",
						s.Number, s.Name, name)
				}
				seen[s] = true
			}
			return len(g.segments) > 0
		})
		return seen
	}
	type kept struct {
		view *groups
		want map[*Segment]bool
	}
	var views []kept
	all := make([]*Segment, 60)
	for i := range all {
		all[i] = New(Spec{Name: []string{"a", "b", "c"}[i%3], Size: 100}, Number(i))
	}
	for range 5000 {
		s := all[rng.IntN(len(all))]
		if there[s] {
			p.Remove(s)
			delete(there, s)
		} else {
			p.Add(s)
			there[s] = true
		}
		if p.HasSegment(s) != there[s] {
			t.Fatalf("segment %d is in the pool: got %t, want %t", s.Number, p.HasSegment(s), there[s])
		}
		if rng.IntN(3) == 0 {
			views = append(views, kept{p.view(), maps.Clone(there)})
		}
	}
	for i, v := range views {
		if got := look(v.view); !maps.Equal(got, v.want) {
			t.Fatalf("view %d has %d segments, want %d", i, len(got), len(v.want))
		}
	}
}

// A mount or unmount takes about as long whatever is there, of one name or of many.
func BenchmarkMounts(b *testing.B) {
	for _, n := range []int{1 << 10, 1 << 17} {
		for _, name := range []string{"of one name", "of many names"} {
			b.Run(fmt.Sprintf("%d %s", n, name), func(b *testing.B) {
				p, all := NewPool(Random, nil), make([]*Segment, n)
				for i := range all {
					all[i] = New(Spec{Name: "a", Size: 1 << 20}, Number(i))
					if name != "of one name" {
						all[i].Name = fmt.Sprint(i)
					}
					p.Add(all[i])
				}
				b.ResetTimer()
				for i := range b.N {
					s := all[i*7919%n]
					p.Remove(s)
					p.Add(s)
					if i%64 == 0 { // with each commit of mounts
						p.Allocate(nil, Request{Size: 1, Replicas: 1})
					}
				}
			})
		}
	}
}
