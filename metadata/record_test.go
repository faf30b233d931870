package metadata

import (
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// The fields that a read needs are in the first 64 bytes of a record. Each additional byte costs
// a megabyte for each million objects.
func TestRecordSize(t *testing.T) {
	if got := recordBytes; got != 80 {
		t.Errorf("a record has %d bytes, want 80", got)
	}
	if got := unsafe.Offsetof(record{}.putStart); got != 64 {
		t.Errorf("what readers need of a record has %d bytes, want 64, a cache line", got)
	}
}

// A record returns what was stored in it, whatever follows it in memory.
func TestRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(Options{})
		lengths := rapid.OneOf(rapid.IntRange(0, 100), rapid.SampledFrom([]int{1<<16 - 1, 1 << 16}))
		var drafts []*draft
		var objects []object
		for i := range rapid.IntRange(1, 20).Draw(t, "objects") {
			key := make([]byte, lengths.Draw(t, "length"))
			for j := range key {
				key[j] = byte(i)
			}
			d := &draft{
				id: ObjectID(i + 1), key: string(key), tenant: tenantID(i), shard: uint16(rapid.IntRange(0, ShardCount-1).Draw(t, "shard")),
				size: rapid.Uint64().Draw(t, "size"), putStart: Time(i), deadline: Time(i * 2), replicas: []replica{{kind: Disk, status: Processing}},
				request: rapid.SampledFrom([]uint64{0, 1, 1<<64 - 1}).Draw(t, "request"), soft: rapid.SampledFrom([]Time{0, 1, -1}).Draw(t, "soft"),
			}
			d.client[0] = byte(rapid.IntRange(0, 3).Draw(t, "client"))
			if rapid.Bool().Draw(t, "extra") {
				d.extra = &extra{group: fmt.Sprint(i)}
			}
			drafts, objects = append(drafts, d), append(objects, s.store(d))
			if d.soft != 0 {
				d.soft = 1 << 40
				objects[i].setSoft(d.soft)
			}
		}
		for i, d := range drafts {
			got := objects[i].borrowed()
			if got.id != d.id || got.key != d.key || got.tenant != d.tenant || objects[i].shard() != d.shard || got.client != d.client ||
				got.size != d.size || got.putStart != d.putStart || got.deadline != d.deadline || got.request != d.request || got.soft != d.soft || got.extra != d.extra {
				t.Fatalf("%+v, want %+v", got, d)
			}
		}
		for _, o := range objects {
			s.forget(o)
		}
		extras := 0
		for i := range s.shards {
			extras += len(s.shards[i].extras)
		}
		if s.slab.Stats().Blocks != 0 || len(s.clients.names) != 0 || extras != 0 {
			t.Fatalf("all objects are gone: got %+v, the clients %v and %d extras, want nothing kept",
				s.slab.Stats(), s.clients.names, extras)
		}
	})
}

// A name stands for its value as long as it is in use; after that it may get another value.
func TestInterned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var n interned[string]
		model, most := make(map[uint32]string), 0 // one entry for each use
		var uses []uint32
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			if len(uses) > 0 && rapid.Bool().Draw(t, "drop") {
				at := rapid.IntRange(0, len(uses)-1).Draw(t, "at")
				n.drop(uses[at])
				uses = slices.Delete(uses, at, at+1)
			} else {
				v := rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e"}).Draw(t, "value")
				name := n.take(v)
				if (name == 0) != (v == "") {
					t.Fatalf("the value %q: got the name %d, want 0 for the empty value only", v, name)
				}
				model[name] = v
				uses = append(uses, name)
			}
			distinct := make(map[uint32]bool)
			for _, name := range uses {
				if got := n.value(name); got != model[name] {
					t.Fatalf("%d is %q, want %q", name, got, model[name])
				}
				distinct[name] = name != 0
			}
			delete(distinct, 0)
			if most = max(most, len(distinct)); len(n.names) != len(distinct) || len(n.uses) > most+1 {
				t.Fatalf("%d values in use, %d at most so far: got %d names, and room for %d; want no more",
					len(distinct), most, len(n.names), len(n.uses)-1)
			}
		}
	})
}
