package segment

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// A host that was found to have no room has some again for what is freed there, or mounted.
func TestRoomComesBack(t *testing.T) {
	for name, back := range map[string]func(t *testing.T, p *Pool, s *Segment, taken Range){
		"freed": func(t *testing.T, _ *Pool, s *Segment, taken Range) {
			if err := s.Free(taken); err != nil {
				t.Fatal(err)
			}
		},
		"mounted":       func(t *testing.T, p *Pool, _ *Segment, _ Range) { mount(t, p, 2, "a", 1<<10) },
		"mounted again": func(_ *testing.T, p *Pool, s *Segment, _ Range) { p.Remove(s); p.Add(New(s.Spec, 3)) },
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPool(Random, nil)
			s := mount(t, p, 1, "a", 1<<10)
			mount(t, p, 9, "b", 64)
			taken, ok := s.Allocate(512)
			if !ok || !takes(s, 512) {
				t.Fatal("a segment of 1 KiB: got it not filled, want it full for this test")
			}
			has := func(size uint64) bool {
				got := p.Allocate(nil, Request{Size: size, Replicas: 1, Preferred: []string{"a"}})
				return len(got) == 1 && got[0].Segment.Name == "a"
			}
			for _, size := range []uint64{512, 256, 1024, 300} {
				if has(size) {
					t.Fatalf("a full host: got %d bytes placed there, want none", size)
				}
			}
			if back(t, p, s, taken); !has(512) {
				t.Error("512 bytes, with room on the host again: got them not placed there, want them there")
			}
		})
	}
}

func takes(s *Segment, size uint64) bool { _, ok := s.Allocate(size); return ok }

// Memory that is freed or mounted while an allocation looks at a host, and may have missed
// it, is not lost to those that follow.
func TestRoomThatComesMeanwhile(t *testing.T) {
	for name, mounted := range map[string]bool{"freed": false, "mounted": true} {
		t.Run(name, func(t *testing.T) {
			p := NewPool(Random, nil)
			s := mount(t, p, 1, "a", 1<<10)
			taken, ok := s.Allocate(1 << 10)
			if !ok {
				t.Fatal("a segment of 1 KiB: got it not filled, want it full for this test")
			}
			a := attempt{pool: p, groups: p.view(), req: Request{Size: 1 << 10}}
			if mounted {
				mount(t, p, 2, "a", 1<<10) // the allocation has begun, but not looked at the host
			}
			frees := s.room.Load().frees.Load()
			if !mounted {
				if err := s.Free(taken); err != nil {
					t.Fatal(err)
				}
			}
			a.lacks(s.room.Load(), frees)
			if _, ok := p.AllocateOn("a", 1<<10); !ok {
				t.Error("an allocation after memory came: got no room, want the memory found")
			}
		})
	}
}

// Whatever allocations, frees and mounts run at the same time: in the end, when all is free,
// no host counts as full.
func TestRoomUnderConcurrency(t *testing.T) {
	const size = 1 << 10
	for range 5 {
		p := NewPool(Random, nil)
		for i := range Number(3) {
			mount(t, p, i+1, "a", size)
		}
		var workers sync.WaitGroup
		for seed := range uint64(4) {
			workers.Go(func() {
				random := rand.New(rand.NewPCG(seed, 1))
				for i := range 300 {
					a, ok := p.AllocateOn("a", 1+random.Uint64N(size))
					if i%50 == 0 && seed == 0 {
						p.Add(New(Spec{Name: "a", Size: size}, Number(100+i)))
					}
					if !ok {
						continue
					}
					if err := a.Segment.Free(a.Range); err != nil {
						t.Error(err)
					}
				}
			})
		}
		workers.Wait()
		for range 9 {
			if _, ok := p.AllocateOn("a", size); !ok {
				t.Fatalf("all is free again: got no room for %d bytes, want 9 such ranges", size)
			}
		}
		if _, ok := p.AllocateOn("a", size); ok {
			t.Fatalf("all is taken: got a range of %d bytes, want none", size)
		}
	}
}
