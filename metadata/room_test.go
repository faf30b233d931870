package metadata_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/metadata/slab"
)

// longKey returns a key of which one fits into a chunk of the slab.
func longKey(i int) string {
	return fmt.Sprintf("%04d", i) + strings.Repeat("k", metadata.MaxKeyBytes-4)
}

// When little room for records is left, new keys are refused until some objects are removed. Puts
// that replace an object are still accepted.
func TestKeysWithoutRoom(t *testing.T) {
	const chunks = 64
	c := newClusterOf(t, metadata.InRecords(chunks*slab.MaxBlock), params)
	c.mount(1, "a", 1<<20)
	n := 0
	for ; n < 2*chunks && c.primary.HasRecordRoom(); n++ {
		c.put(longKey(n))
	}
	if n != chunks-chunks/8 { // nothing lies in the first chunk, and the last put may go below the bound
		t.Fatalf("%d chunks: got room for %d keys, want %d: an eighth stays free", chunks, n, chunks-chunks/8)
	}
	err := c.putStart(longKey(n))
	wantKind(t, "a key without room", err, errs.NoAvailableHandle)
	wantKind(t, "a short key without room", c.putStart("k"), errs.NoAvailableHandle)
	if !strings.Contains(fmt.Sprint(err), "remove some") {
		t.Errorf("a key without room: got %v, want it to say what to do: \"remove some\"", err)
	}
	if err := c.putStart(longKey(0), func(p *metadata.Put) { p.Upsert = true }); err != nil {
		t.Errorf("an upsert without room for new keys: got %v, want no error", err)
	}
	for i := range 4 {
		if err := c.remove(longKey(i+1), true); err != nil {
			t.Fatal(err)
		}
	}
	c.put("k")
	c.put(longKey(n))
}

// A node whose records are more fragmented than the primary's runs out of room first. Applying
// the commit fails, and so does loading a snapshot that does not fit.
func TestFollowerWithoutRoom(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	for i := range 5 {
		c.put(longKey(i))
	}
	c.options = metadata.InRecords(4 * slab.MaxBlock)
	var err error
	small := metadata.New(c.options)
	for _, commit := range c.log {
		if _, err = small.Apply(c.recode(commit), nil); err != nil {
			break
		}
	}
	if !strings.Contains(fmt.Sprint(err), "no room for the record") {
		t.Errorf("the fifth key on a follower with three chunks: got %v, want \"no room for the record\"", err)
	}
	if _, err := c.load(c.snapshot()); !strings.Contains(fmt.Sprint(err), "no room for the record") {
		t.Errorf("a snapshot of five keys on a node with three chunks: got %v, want \"no room for the record\"", err)
	}
}

// A key counts for at least what its record takes.
func TestKeyBytes(t *testing.T) {
	for _, c := range []struct {
		length int
		want   int64
	}{{1, 151}, {40, 190}, {16 << 10, 150 + 16<<10}, {60_000, 150 + 64<<10}, {metadata.MaxKeyBytes, 150 + 128<<10}} {
		if got := metadata.KeyBytes(strings.Repeat("k", c.length)); got != c.want {
			t.Errorf("a key of %d bytes counts for %d, want %d", c.length, got, c.want)
		}
	}
}
