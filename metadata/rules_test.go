package metadata_test

import (
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/metadata"
)

// A state that no newer rules are in force in has the digest and the snapshot
// that it always had: nodes of one cluster may run different versions.
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
		t.Errorf("the snapshot has the sum %#x, the state the digest %#x", got, uint64(c.primary.Position().Digest))
	}
	c.mountDisk(1, true)
	for _, parts := range [][][]byte{parts, c.snapshot()} {
		if _, err := c.load(parts); err != nil {
			t.Errorf("a snapshot of the first rules: %v", err)
		}
	}
}

const (
	goldenSnapshot = 0xc16080cad7b206f1
	goldenDigest   = 0x36d330661cf7f480
)
