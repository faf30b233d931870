package metadata_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/metadata"
)

func (c *cluster) snapshot() (parts [][]byte) {
	for i := range metadata.SnapshotParts {
		part, _ := c.primary.AppendSnapshotPart(nil, i)
		parts = append(parts, part)
	}
	return parts
}

// rich fills a cluster with one of everything.
func rich(c *cluster) {
	c.mount(1, "a", 1<<20)
	gone := c.mount(2, "b", 1<<20)
	c.mount(3, "c", 1<<30)
	c.mountDisk(1, true)
	c.mountDisk(2, true)
	c.mountDisk(3, false)
	for _, key := range keys("k", 200) {
		c.put(key, func(p *metadata.Put) { p.Replicas, p.Preferred = 2, []string{"a", "b"} })
	}
	onA := func(p *metadata.Put) { p.Preferred = []string{"a"} }
	c.put("soft", onA, softPin)
	c.put("hard", onA, hardPin)
	c.put("disk", onA, func(p *metadata.Put) { p.DiskPath, p.Group, p.DataType = "/d/disk", "group", 3 })
	sum := uint64(0xfeedface)
	_ = c.putStart("sum", onA, func(p *metadata.Put) { p.Request = 99 })
	e, _, _ := c.primary.PreparePutEnd(c.putRef("sum"), &sum)
	c.must(c.commit(e))
	_ = c.putStart("open", onA, func(p *metadata.Put) { p.Request = 98 })
	_ = c.putStart("revoked", onA)
	_ = c.revokeAs(c.putRef("revoked"))
	for _, key := range keys("k", 50) {
		c.read(key)
	}
	c.scan()
	for _, key := range keys("k", 40) {
		c.must([]error{c.copyTo(1, key), c.copyTo(2, key)})
	}
	c.unmountDisk(2)
	_ = c.remove("k3", true)
	removal, _, _ := deleteevents.Prepare(c.primary, deleteevents.Request{Tenant: "default", Key: "k60", ID: 4711}, c.now)
	c.must(c.commit(removal))
	c.unmount(gone)
	c.pass(time.Second)
	c.commit()
}

func TestSnapshotOfAQuietPrimary(t *testing.T) {
	c := newCluster(t)
	rich(c)
	s, err := c.load(c.snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Position(), c.primary.Position(); got != want || s.Time() != want.Time {
		t.Errorf("loaded %+v at %d, want %+v", got, s.Time(), want)
	}
	c.follower = s // goes on from here, and must agree at each commit
	c.put("after")
	_ = c.remove("k9", true)
	c.pass(time.Minute)
	c.commit()
	c.evict(eviction.Bounds{Objects: 30})
	o, err := s.Inspect("default", "sum")
	if err != nil || o.Checksum == nil || *o.Checksum != 0xfeedface {
		t.Errorf("a loaded object: got %+v, %v, want its checksum", o, err)
	}
	if o, err := s.Inspect("default", "disk"); err != nil || o.Group != "group" || o.DataType != 3 {
		t.Errorf("a loaded object: got %+v, %v, want its group and its data type", o, err)
	}
}

// Commits go on while parts are copied. A commit that a part already has must not be applied to
// it again [model].
func TestModelSnapshotUnderWrites(t *testing.T) {
	c := newCluster(t)
	rich(c)
	var parts [][]byte
	names := keys("w", metadata.SnapshotParts)
	for i := range metadata.SnapshotParts {
		part, _ := c.primary.AppendSnapshotPart(nil, i)
		parts = append(parts, part)
		switch {
		case i == 100:
			c.mount(9, "late", 1<<20)
		case i == 150:
			c.mountDisk(9, true)
			c.mountDisk(10, false)
		case i == 500:
			c.unmount(c.primary.Segments()[0].ID)
		case i == 600:
			c.unmountDisk(1)
			c.mountDisk(9, false)
			c.mountDisk(1, true)
		case i == 700:
			c.unmountDisk(10)
		case i > 150 && i%11 == 0:
			c.put(names[i], func(p *metadata.Put) { p.Replicas, p.Preferred = 2, []string{"late", "a"} })
			c.must([]error{c.copyTo(9, names[i])})
			_ = c.copyTo(1, names[i])
			_ = c.copyTo(10, names[i])
		case i%97 == 0:
			c.pass(time.Second)
			c.commit()
			c.evict(eviction.Bounds{Objects: 5})
		case i%7 == 0:
			_ = c.remove(names[i/2], true)
		default:
			c.put(names[i], func(p *metadata.Put) { p.Replicas = 2 })
			c.read(names[i/2])
		}
	}
	s, err := c.load(parts)
	if err != nil {
		t.Fatal(err)
	}
	for seq := s.Position().Seq + 1; seq <= c.seq; seq++ {
		c.apply(s, c.recode(c.log[seq-1]))
	}
	if got, want := s.Position(), c.primary.Position(); got != want {
		t.Errorf("loaded %+v, want %+v", got, want)
	}
}

func TestBrokenSnapshots(t *testing.T) {
	c := newCluster(t)
	rich(c)
	whole := c.snapshot()
	for name, change := range map[string]func([][]byte) [][]byte{
		"cut between parts": func(p [][]byte) [][]byte { return p[:700] },
		"cut inside a part": func(p [][]byte) [][]byte { p[500] = p[500][:len(p[500])/2]; return p },
		"a part twice":      func(p [][]byte) [][]byte { p[8] = p[7]; return p },
		"a part left out":   func(p [][]byte) [][]byte { return append(p[:7:7], p[8:]...) },
		"bytes left over":   func(p [][]byte) [][]byte { p[0] = append(p[0], 0); return p },
		"an object changed": func(p [][]byte) [][]byte {
			for i := range p[1:] {
				if at := bytes.Index(p[i], []byte("k7")); at >= 0 {
					p[i][at+1] = '_'
				}
			}
			return p
		},
		"a digest changed": func(p [][]byte) [][]byte { last := p[len(p)-1]; last[len(last)-1] ^= 1; return p },
		"time running back": func(p [][]byte) [][]byte {
			p[3] = binary.AppendUvarint(binary.AppendUvarint(nil, 3), 1)
			return p
		},
	} {
		parts := make([][]byte, len(whole))
		for i := range whole {
			parts[i] = bytes.Clone(whole[i])
		}
		if s, err := c.load(change(parts)); err == nil || s != nil {
			t.Errorf("%s: got the snapshot loaded, want it refused", name)
		}
	}
	if _, err := c.load(whole[:700]); !errors.Is(err, metadata.ErrIncomplete) {
		t.Errorf("a snapshot cut between parts: got %v, want ErrIncomplete", err)
	}
	if _, err := c.load(whole); err != nil {
		t.Errorf("the whole snapshot: got %v, want it loaded", err)
	}
}

// Memory that two objects hold, or that lies outside of its segment, is refused when a
// snapshot is loaded, and there is no store: conformance line 67, conformance line 78.
func TestSnapshotRangesAreChecked(t *testing.T) {
	build := func(size uint64, key string) *cluster {
		c := newCluster(t)
		c.mount(1, "a", size)
		if key != "" {
			c.put(key, func(p *metadata.Put) { p.Size = 64 << 10 })
		} else { // as many commits
			c.commit()
			c.commit()
		}
		return c
	}
	one, other, small := build(1<<20, "k1"), build(1<<20, "k2").snapshot(), build(32<<10, "").snapshot()
	for want, change := range map[string]func([][]byte) [][]byte{
		"": func(p [][]byte) [][]byte { return p },
		"busy": func(p [][]byte) [][]byte { // both objects, which have the same place
			for i := range p[1 : len(p)-1] {
				if len(other[i+1]) > len(p[i+1]) {
					p[i+1] = other[i+1]
				}
			}
			return p
		},
		"is not inside the segment": func(p [][]byte) [][]byte { p[0] = small[0]; return p },
	} {
		s, err := one.load(change(one.snapshot()))
		switch {
		case want == "" && err != nil:
			t.Errorf("the whole snapshot: got %v, want it loaded", err)
		case want == "" && s.Stats().Busy != one.primary.Stats().Busy:
			t.Errorf("%d bytes are busy after a load, want %d", s.Stats().Busy, one.primary.Stats().Busy)
		case want != "" && (s != nil || err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("got a store %v, error %v; want none, and %q", s != nil, err, want)
		}
	}
}
