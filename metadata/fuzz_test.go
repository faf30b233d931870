package metadata_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/metadata/binenc"
	"github.com/understudy-store/understudy/segment"
)

var decoders = [metadata.StreamCount]func([]byte) (metadata.Change, error){
	metadata.LeaseRenewals: leasesync.Decode,
	metadata.ObjectEvents:  decodeObjectEvent,
	metadata.DeleteEvents:  deleteevents.Decode,
}

// allocated returns how many bytes f takes from the heap, about.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// FuzzObjectEvent feeds the decoder any bytes. It must refuse them, or return a change that
// survives encoding and decoding, and must not take more memory than the bytes justify.
func FuzzObjectEvent(f *testing.F) {
	sum := uint64(7)
	ref := metadata.Ref{Shard: 1023, ID: 1<<64 - 1}
	for _, change := range []metadata.Change{
		&metadata.TermStart{Term: metadata.MaxTerm, Params: params, Guard: time.Second, Empty: true},
		&metadata.Mount{Spec: segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: 1 << 20, HostID: "h"}, Replaces: []segment.Number{1, 2}},
		&metadata.PutStart{Tenant: "t", Key: "k", ID: 1, Size: 1, Placements: []metadata.Placement{{Segment: 1, Range: segment.Range{Length: 8}}}},
		&metadata.PutStart{
			Tenant: metadata.DefaultTenant, Key: "k", ID: 2, Request: 3, DiskPath: "/d", SoftPin: time.Hour, HardPin: true, Group: "g", DataType: 4, Replaces: 1,
		},
		&metadata.PutStart{Tenant: metadata.DefaultTenant, Key: "k", ID: 2, Replaces: 1, Upsert: true, InPlace: true, LeaseUntil: 9},
		&metadata.PutEnd{Ref: ref, Selector: metadata.SelectAll, Checksum: &sum},
		&metadata.RevokeReplicas{Ref: ref, Selector: metadata.SelectDisk},
		&metadata.ClearReplicas{Ref: ref, Segments: []segment.Number{1, 1<<32 - 1}},
		&metadata.Discard{Ref: ref},
		&eviction.Cutoff{Deadline: -1, ID: 5, PinTime: 1 << 62, IncludePinned: true},
		&metadata.MountLocalDisk{Client: client(1), Offloading: true},
		&metadata.SetOffloading{Number: 1<<32 - 1, Offloading: true},
		&metadata.UnmountLocalDisk{Number: 3},
		&metadata.ClearReplicas{Ref: ref, Segments: []segment.Number{1}, LeaseUntil: 9, Disk: true},
		&metadata.CloseSegment{Number: 3, Until: 9},
		&metadata.WipeDisks{Number: 3},
		&metadata.AddLocalDisk{Ref: ref, Number: 3, Endpoint: "host:1"},
		&metadata.UseRules{Version: metadata.NewestRules},
		&metadata.Fork{Hold: time.Minute},
	} {
		b := encoding(f, change)
		if _, err := decodeObjectEvent(b); err != nil {
			f.Fatalf("decoding an encoded %T: got %v, want no error", change, err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var c metadata.Change
		var err error
		if n := allocated(func() { c, err = decodeObjectEvent(b) }); n > 1<<20+64*uint64(len(b)) {
			t.Fatalf("decoding %d bytes: got %d bytes allocated, want 1 MiB and 64 for each byte at most", len(b), n)
		}
		if err != nil {
			return
		}
		once := encoding(t, c)
		again, err := decodeObjectEvent(once)
		if err != nil {
			t.Fatalf("%+v, decoded, encoded and decoded again: got %v, want no error", c, err)
		}
		if twice := encoding(t, again); !bytes.Equal(once, twice) {
			t.Fatalf("%+v encodes to %x: decoded and encoded again got %x, want the same", c, once, twice)
		}
	})
}

func encoding(t testing.TB, c metadata.Change) []byte {
	t.Helper()
	b := metadata.Encode(nil, c)
	return b
}

// FuzzHistory applies whatever can be decoded to two stores. They must agree after each commit,
// also on faults. As long as there is no fault, ranges are disjoint, exactly the ranges in use
// are allocated, and a store from a snapshot has the same state and goes on in the same way.
func FuzzHistory(f *testing.F) {
	for _, story := range []func(*cluster){
		func(c *cluster) { c.put("x"); c.read("x"); c.scan(); _ = c.remove("x", true); c.put("x") },
		func(c *cluster) { c.put("x", softPin); c.pass(time.Hour); c.evict(eviction.Bounds{Objects: 1}) },
		func(c *cluster) {
			c.mount(2, "b", 300)
			c.put("x", hardPin, func(p *metadata.Put) { p.Replicas = 2 })
			c.put("y", func(p *metadata.Put) { p.DiskPath, p.Group, p.DataType = "/d/y", "g", 3 })
			c.unmount(c.primary.Segments()[0].ID)
		},
		func(c *cluster) {
			c.mountDisk(1, true)
			c.mountDisk(2, false)
			c.put("x")
			c.put("y")
			_, _, _ = c.copyTo(1, "x"), c.copyTo(2, "x"), c.copyTo(2, "y")
			c.pass(time.Second)
			c.commit()
			c.evict(eviction.Bounds{Objects: 1})
			c.unmountDisk(1)
			c.mountDisk(2, true)
		},
		func(c *cluster) {
			_ = c.putStart("x", func(p *metadata.Put) { p.Request = 7 })
			c.pass(time.Minute)
			_ = c.putStart("x")
			_ = c.revokeAs(c.putRef("x"))
			c.startTerm(params, 20*time.Second)
			_ = c.putStart("y")
			c.pass(11 * time.Minute)
			for _, e := range c.primary.PrepareDiscards(c.now, 10) {
				c.commit(e)
			}
		},
		func(c *cluster) {
			c.put("x")
			c.put("x", upsert)
			c.read("x")
			c.put("x", upsert)
			_ = c.putStart("x", upsert)
		},
	} {
		c := newCluster(f)
		c.mount(1, "a", 300)
		story(c)
		f.Add(scriptOf(f, c.log))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		h := history{t: t, one: metadata.New(metadata.Options{}), two: metadata.New(metadata.Options{})}
		h.term = 1
		if !h.apply(0, &metadata.TermStart{Term: 1, Params: params}) {
			t.Fatal("the first entry of a term: got it refused, want it applied")
		}
		if h.play(script) {
			h.check()
		}
	})
}

// A script is a history in a form that a fuzzer can change: for each commit the
// milliseconds since the one before and the changes, each with its stream and
// its encoding.
func scriptOf(t testing.TB, log []*metadata.Commit) (b []byte) {
	var last metadata.Time
	for _, c := range log {
		b = binary.AppendUvarint(b, uint64(c.Time-last))
		b = append(b, byte(len(c.Changes)))
		for _, change := range c.Changes {
			b = append(b, byte(change.Stream()))
			b = binenc.AppendString(b, string(encoding(t, change)))
		}
		last = c.Time
	}
	return b
}

// A history is two stores that get the same commits, one of them with changes
// that went through their encoding once more.
type history struct {
	t        *testing.T
	one, two *metadata.Store
	term     metadata.Term
}

// play applies a script up to its end or the first fault. It reports whether
// there was none.
func (h *history) play(script []byte) bool {
	r := binenc.NewReader(script)
	left := 1000 // changes: so no script takes long
	for commits := 0; r.Len() > 0 && commits < 100 && left > 0; commits++ {
		pause := metadata.Time(r.UvarintMax("a pause", 1<<50))
		var changes []metadata.Change
		for range r.Byte() {
			stream := r.Byte() % byte(metadata.StreamCount)
			c, err := decoders[stream](r.Bytes(metadata.MaxChangeBytes))
			if r.Err() != nil || err != nil {
				break
			}
			if start, ok := c.(*metadata.TermStart); ok {
				h.term = start.Term
			}
			changes = append(changes, c)
			left--
		}
		if !h.apply(pause, changes...) {
			return false
		}
	}
	return true
}

// apply commits changes on both stores, which must agree afterwards.
func (h *history) apply(pause metadata.Time, changes ...metadata.Change) bool {
	h.t.Helper()
	at := h.one.Position()
	commit := metadata.Commit{Seq: at.Seq + 1, Term: h.term, Time: at.Time + pause, Changes: changes}
	again := commit
	again.Changes = nil
	for _, c := range changes {
		copied, err := decoders[c.Stream()](encoding(h.t, c))
		if err != nil {
			h.t.Fatalf("decoding an encoded %T: got %v, want no error", c, err)
		}
		again.Changes = append(again.Changes, copied)
	}
	p1, err1 := h.one.Apply(&commit, make([]error, len(changes)))
	p2, err2 := h.two.Apply(&again, nil)
	if p1 != p2 || (err1 == nil) != (err2 == nil) {
		h.t.Fatalf("S: after %T... got one store at %+v, %v, and the other at %+v, %v; want them to agree",
			first(changes), p1, err1, p2, err2)
	}
	return err1 == nil
}

// check looks at the state from all sides, then lets a copy of it go on.
func (h *history) check() {
	h.t.Helper()
	checkBusy(h.t, h.one)
	copied := reload(h.t, h.one)
	for h.one.Sweep(100) {
	}
	before, after := h.one.Stats(), copied.Stats()
	before.SoftPinned, after.SoftPinned = 0, 0 // pins that have ended are looked at lazily
	before.Evicted, before.Discarded, before.QuarantineExits, before.DiscardedBytes, before.DiscardsFreed = 0, 0, 0, 0, 0
	if before != after {
		h.t.Fatalf("S: a store loaded from a snapshot: got %+v, want %+v", after, before)
	}
	h.two = copied
	far := metadata.Time(1) << 60
	for _, c := range []metadata.Change{
		&eviction.Cutoff{Deadline: h.one.Position().Time - 1, PinTime: h.one.Position().Time},
		&eviction.Cutoff{Deadline: far, PinTime: far},
		&metadata.Mount{Spec: segment.Spec{ID: segment.ID{9}, Name: "late", Base: 1 << 50, Size: 1 << 20}},
		&eviction.Cutoff{Deadline: far, PinTime: far, IncludePinned: true},
	} {
		if !h.apply(1000, c) {
			h.t.Fatalf("%T on a store without faults: got it refused, want it applied", c)
		}
	}
	checkBusy(h.t, h.one)
}

// checkBusy checks that no range overlaps another or lies outside of its segment, and that
// exactly the ranges in use are allocated.
func checkBusy(t *testing.T, s *metadata.Store) {
	t.Helper()
	all, _ := allRanges(s, segment.ID{})
	var sum uint64
	for _, list := range all {
		end := uint64(0)
		for _, r := range list.Ranges {
			if r.Offset < end || r.Length == 0 || r.Offset+r.Length > list.Size {
				t.Fatalf("A: segment %v of %d bytes: got the range %+v, want it inside, and at or behind %d",
					list.ID, list.Size, r, end)
			}
			end = r.Offset + r.Length
			sum += r.Length
		}
	}
	if busy := s.Stats().Busy; busy != sum {
		t.Fatalf("got %d bytes allocated, want %d, the sum of the ranges in use", busy, sum)
	}
}

// reload passes a quiet store through a snapshot.
func reload(t *testing.T, s *metadata.Store) *metadata.Store {
	t.Helper()
	l := metadata.NewLoader(metadata.Options{})
	var part []byte
	for i := range metadata.SnapshotParts {
		part, _ = s.AppendSnapshotPart(part[:0], i)
		if err := l.Add(part); err != nil {
			t.Fatalf("loading a store's own snapshot, part %d: got %v, want no error", i, err)
		}
	}
	loaded, err := l.Finish()
	if err != nil {
		t.Fatalf("loading a store's own snapshot: got %v, want no error", err)
	}
	if got, want := loaded.Position(), s.Position(); got != want {
		t.Fatalf("loaded %+v, want %+v", got, want)
	}
	if faults := loaded.IndexFaults(); faults != nil {
		t.Fatal(faults)
	}
	return loaded
}

// FuzzSnapshotPart replaces one part of a snapshot by any bytes, and may cut the stream as well.
// Loading must fail, or return a consistent store.
func FuzzSnapshotPart(f *testing.F) {
	c := newCluster(f)
	rich(c)
	leaveClaims(c)
	whole := c.snapshot()
	for i, part := range whole {
		if i == 0 || i == metadata.SnapshotParts-1 || len(part) > 60 && i%16 == 0 {
			f.Add(uint16(i), part, uint16(metadata.SnapshotParts), i%32 == 0)
		}
	}
	f.Add(uint16(5), whole[5], uint16(700), false)
	f.Add(uint16(metadata.SnapshotParts-1), whole[metadata.SnapshotParts-1], uint16(metadata.SnapshotParts), true)
	f.Fuzz(func(t *testing.T, number uint16, part []byte, parts uint16, trust bool) {
		number %= metadata.SnapshotParts
		parts = min(parts, metadata.SnapshotParts)
		l := metadata.NewLoader(metadata.Options{})
		for i := range parts {
			err := error(nil)
			if i != number {
				err = l.Add(whole[i])
			} else if n := allocated(func() { err = l.Add(part) }); n > 1<<20+64*uint64(len(part)) {
				t.Fatalf("loading a part of %d bytes: got %d bytes allocated, want 1 MiB and 64 for each byte at most",
					len(part), n)
			}
			if err != nil {
				if s, err := l.Finish(); s != nil || !errors.Is(err, metadata.ErrIncomplete) {
					t.Fatalf("a snapshot of which part %d is refused: got a store: %v, and %v; want none, and ErrIncomplete",
						i, s != nil, err)
				}
				return
			}
		}
		finish := l.Finish
		if trust { // the digest is in the way of most changed parts
			finish = l.FinishUnchecked
		}
		s, err := finish()
		if parts < metadata.SnapshotParts && !errors.Is(err, metadata.ErrIncomplete) {
			t.Fatalf("a snapshot of only %d parts: got %v, want ErrIncomplete", parts, err)
		}
		if err != nil {
			return
		}
		checkBusy(t, s)
		h := history{t: t, one: s, two: reload(t, s), term: s.Position().Term}
		h.check()
	})
}

// A snapshot that is cut anywhere is refused: as incomplete, or with an error at the cut.
func FuzzSnapshotCut(f *testing.F) {
	c := newCluster(f)
	rich(c)
	leaveClaims(c)
	whole := c.snapshot()
	f.Add(uint16(0), uint16(0))
	f.Add(uint16(500), uint16(1))
	f.Add(uint16(metadata.SnapshotParts-1), uint16(40))
	f.Fuzz(func(t *testing.T, number, offset uint16) {
		number %= metadata.SnapshotParts
		l := metadata.NewLoader(metadata.Options{})
		for _, part := range whole[:number] {
			if err := l.Add(part); err != nil {
				t.Fatal(err)
			}
		}
		if cut := whole[number][:int(offset)%len(whole[number])]; l.Add(cut) == nil {
			t.Fatalf("part %d, cut after %d bytes: got no error, want it refused", number, len(cut))
		}
		if s, err := l.Finish(); s != nil || !errors.Is(err, metadata.ErrIncomplete) {
			t.Fatalf("a snapshot cut at part %d: got a store: %v, and %v; want none, and ErrIncomplete", number, s != nil, err)
		}
	})
}

// Found by fuzzing. A term with a shorter lease TTL must look ahead for a shorter time when it
// counts the memory that leaves quarantine soon, since that counts as free and starts no
// eviction.
func TestShorterTTLCountsLessAsLeavingSoon(t *testing.T) {
	long := params
	long.LeaseTTL = time.Hour
	c := newClusterWith(t, long)
	c.mount(1, "a", 1<<20)
	_ = c.putStart("x")
	_ = c.revokeAs(c.putRef("x")) // its writer may be late for 600 s
	c.commit()
	if st := c.primary.Stats(); st.Quarantined != 104 || st.LeavingSoon != 104 {
		t.Errorf("with a TTL of an hour: got %d bytes in quarantine and %d leaving soon, want 104 and 104",
			st.Quarantined, st.LeavingSoon)
	}
	c.startTerm(params, 0)
	if st := c.primary.Stats(); st.Quarantined != 104 || st.LeavingSoon != 0 {
		t.Errorf("with a TTL of 10s: got %d bytes in quarantine and %d leaving soon, want 104 and 0",
			st.Quarantined, st.LeavingSoon)
	}
	c.pass(600 * time.Second)
	c.commit()
	if st := c.primary.Stats(); st.Quarantined+st.LeavingSoon+st.Busy != 0 {
		t.Errorf("after the release time: got %d bytes in quarantine, %d leaving soon and %d busy, want none",
			st.Quarantined, st.LeavingSoon, st.Busy)
	}
}

// A snapshot with an object of the smallest possible encoding can be loaded.
func TestSmallestObjectInASnapshot(t *testing.T) {
	s := metadata.New(metadata.Options{})
	_, err := s.Apply(&metadata.Commit{Seq: 1, Term: 1, Changes: []metadata.Change{
		&metadata.TermStart{Term: 1, Params: params}, &metadata.PutStart{Tenant: metadata.DefaultTenant, ID: 1, DiskPath: "/"},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	reload(t, s)
}

// Parameters whose times would overflow are refused.
func TestParamsBeyondAllTime(t *testing.T) {
	for _, p := range []metadata.Params{
		{LeaseTTL: 1<<63 - 1, DiscardTimeout: time.Second, ReleaseTimeout: time.Second},
		{LeaseTTL: time.Second, DiscardTimeout: time.Second, ReleaseTimeout: 1<<63 - 1},
	} {
		b := encoding(t, &metadata.TermStart{Term: 1, Params: p})
		if c, err := decodeObjectEvent(b); err == nil {
			t.Errorf("got %+v decoded, with a hold of %v, want times that overflow refused", c, p.HoldTime())
		}
	}
}
