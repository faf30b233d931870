package metadata_test

import (
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// A state without newer rules has the same digest and snapshot as ever, since nodes of one cluster
// may run different versions.
func TestFirstRulesStayAsTheyWere(t *testing.T) {
	c := &cluster{t: t, primary: metadata.New(metadata.Options{}), follower: metadata.New(metadata.Options{}), now: 1000, term: 1}
	c.primary.StartIDs(1)
	c.must(c.commit(&metadata.TermStart{Term: 1, Params: params}))
	c.mount(1, "a", 1000)
	c.put("x", softPin, func(p *metadata.Put) { p.Group = "g" })
	_ = c.putStart("y", func(p *metadata.Put) { p.Request = 7 })
	c.put("z")
	removal, _, _ := deleteevents.Prepare(c.primary, deleteevents.Request{Tenant: "default", Key: "z", ID: 4711}, c.now)
	c.must(c.commit(removal))
	var sum xxh3.Hasher
	parts := c.snapshot()
	for _, part := range parts {
		_, _ = sum.Write(part)
	}
	if got := sum.Sum64(); got != goldenSnapshot || c.primary.Position().Digest != goldenDigest {
		t.Errorf("got the snapshot's sum %#x and the digest %#x, want them as in earlier versions: %#x and %#x",
			got, uint64(c.primary.Position().Digest), uint64(goldenSnapshot), uint64(goldenDigest))
	}
	c.mountDisk(1, true)
	for _, parts := range [][][]byte{parts, c.snapshot()} {
		if _, err := c.load(parts); err != nil {
			t.Errorf("loading a snapshot of the first rules: got %v, want no error", err)
		}
	}
}

const (
	goldenSnapshot = 0xc16080cad7b206f1
	goldenDigest   = 0x36d330661cf7f480
)

// Before the third rules a mount carries no instance, since older nodes could not read it. Under
// the third rules the instance is part of the state.
func TestInstancesOfMounts(t *testing.T) {
	spec := segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: 1000, Endpoint: "a:1", Client: client(1), Instance: 7}
	for rules, want := range map[metadata.Rules]uint64{metadata.FirstRules: 0, 2: 0, metadata.NewestRules: 7} {
		c := &cluster{t: t, primary: metadata.New(metadata.Options{}), follower: metadata.New(metadata.Options{}), now: 1000, term: 1}
		c.must(c.commit(&metadata.TermStart{Term: 1, Params: params}))
		c.must(c.commit(&metadata.UseRules{Version: rules}))
		e, err := c.primary.PrepareMount(spec)
		if err != nil {
			t.Fatal(err)
		}
		c.must(c.commit(e))
		loaded, err := c.load(c.snapshot())
		if err != nil {
			t.Fatal(err)
		}
		for what, s := range map[string]*metadata.Store{"the primary": c.primary, "a standby": c.follower, "a snapshot": loaded} {
			if got := s.Segments()[0].Instance; got != want {
				t.Errorf("rules %d: on %s the mount has the instance %d, want %d", rules, what, got, want)
			}
		}
		if again, err := c.primary.PrepareMount(spec); again != nil || err != nil {
			t.Errorf("rules %d: a repeated mount: %v, %v; want nothing to do", rules, again, err)
		}
	}
}

// Before the fifth rules a key may only be as long as older nodes can read.
func TestLongKeysWaitForTheirRules(t *testing.T) {
	c := &cluster{t: t, primary: metadata.New(metadata.Options{}), follower: metadata.New(metadata.Options{}), now: 1000, term: 1}
	c.must(c.commit(&metadata.TermStart{Term: 1, Params: params}))
	c.primary.StartIDs(1)
	c.mount(1, "a", 1<<20)
	start := func(n int) error {
		put := &metadata.Put{Tenant: metadata.DefaultTenant, Key: strings.Repeat("k", n), Client: client(1), Size: 100, Replicas: 1}
		e, _, _, err := c.primary.PreparePutStart(put, c.now)
		if err == nil {
			c.must(c.commit(e))
		}
		return err
	}
	for _, step := range []struct {
		rules metadata.Rules
		bytes int
		want  errs.Kind
	}{{4, 4096, errs.OK}, {4, 4097, errs.InvalidKey}, {5, metadata.MaxKeyBytes, errs.OK}} {
		c.must(c.commit(&metadata.UseRules{Version: step.rules}))
		if err := start(step.bytes); errs.KindOf(err) != step.want {
			t.Errorf("rules %d, a key of %d bytes: got %v, want %v", step.rules, step.bytes, err, step.want)
		}
	}
	loaded, err := c.load(c.snapshot())
	if err != nil || loaded.Stats().Objects != 2 {
		t.Errorf("a snapshot with both keys: got %v, %v; want 2 objects and no error", loaded.Stats().Objects, err)
	}
}
