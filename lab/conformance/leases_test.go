package conformance_test

import (
	"slices"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/metadata"
)

// taken is what an object of 100 bytes takes.
const taken = 104

var (
	softly = mooncake.ReplicateConfig{Replicas: 1, SoftPin: mooncake.SoftPinEnable}
	hard   = mooncake.ReplicateConfig{Replicas: 1, HardPin: true}
)

// most has a round evict four fifths of the objects, as target and as least.
var most = eviction.Watermark{High: 0.2, SoftPins: true}

var leases = []line{
	{number: 43, given: "ended leases, low usage: objects stay readable", run: func(w *world) {
		w.put("k")
		w.get("k", errs.OK)
		w.pass(time.Hour)
		w.count("evicted", w.evict(), 0)
		w.get("k", errs.OK)
	}},
	{number: 44, given: "pressure, all objects leased: none is evicted", size: 10 * taken, run: func(w *world) {
		keys := lonetest.Keys("k", 10)
		w.put(keys...)
		w.primary.Get(keys...)
		start(w, "more", 100, errs.NoAvailableHandle)
		w.count("evicted", w.evict(), 0)
		w.count("left", w.alive(keys...), 10)
	}},
	{number: 45, given: "400 objects, ratio 0.05: exactly the 20 oldest go", size: 500 * taken, run: func(w *world) {
		keys := lonetest.Keys("k", 400)
		w.put(keys...)
		for _, key := range slices.Backward(keys) { // the last put is the first read
			w.primary.Get(key)
			w.pass(time.Millisecond)
			w.primary.Scan()
		}
		w.pass(time.Hour)
		w.loop.AllocationFailed(taken, w.primary.Store.Time())
		w.count("evicted", w.evict(), 20)
		w.count("of the 20 oldest left", w.alive(keys[380:]...), 0)
	}},
	{number: 46, given: "target and least are equal: exactly that many go", size: 100 * taken, policy: eviction.Watermark{High: 0.8, SoftPins: true}, run: func(w *world) {
		w.put(lonetest.Keys("k", 100)...)
		w.pass(time.Hour)
		w.count("evicted", w.evict(), 20)
	}},
	{number: 47, given: "enough objects without a pin: soft-pinned ones are not touched", size: 100 * taken, policy: eviction.Watermark{High: 0.8, SoftPins: true}, run: func(w *world) {
		pinned := lonetest.Keys("pinned", 50)
		w.putAs(softly, pinned...)
		w.put(lonetest.Keys("k", 50)...)
		w.pass(time.Minute)
		w.count("evicted", w.evict(), 20)
		w.count("pinned left", w.alive(pinned...), 50)
	}},
	{number: 48, given: "10 objects without a pin and 10 soft-pinned, ratio 0.8: the 10, then 6 of the pinned", size: 20 * taken, policy: most, run: func(w *world) {
		pinned, plain := lonetest.Keys("pinned", 10), lonetest.Keys("k", 10)
		w.putAs(softly, pinned...)
		w.put(plain...)
		w.pass(time.Minute)
		w.count("evicted", w.evict(), 16)
		w.count("without a pin left", w.alive(plain...), 0)
		w.count("pinned left", w.alive(pinned...), 4)
	}},
	{number: 49, given: "soft-pinned objects must not go: none does", size: 20 * taken, policy: eviction.Watermark{High: 0.2}, run: func(w *world) {
		w.putAs(softly, lonetest.Keys("pinned", 20)...)
		w.pass(time.Minute)
		w.count("evicted", w.evict(), 0)
	}},
	{number: 50, given: "a soft pin has ended, then a read: it does not begin again", run: func(w *world) {
		w.putAs(softly, "k")
		w.pass(30 * time.Minute)
		w.get("k", errs.OK)
		if o, err := w.primary.Store.Inspect(metadata.DefaultTenant, "k"); err != nil || o.SoftPin {
			w.Errorf("got pinned %t, %v; want no pin", o.SoftPin, err)
		}
	}},
	{number: 51, given: "older releases: a read extends a soft pin", differs: true},
	{number: 52, given: "hard-pinned: never evicted", size: 20 * taken, policy: most, run: func(w *world) {
		w.putAs(hard, lonetest.Keys("hard", 20)...)
		w.pass(time.Hour)
		w.count("evicted", w.evict(), 0)
	}},
	{number: 53, given: "soft-pinned, not leased: Remove succeeds", run: func(w *world) {
		w.putAs(softly, "k")
		w.code("Remove", w.Remove("k", false), errs.OK)
	}},
	{number: 54, given: "a group is evicted whole, and one leased member keeps it", size: 10 * taken, policy: most, hosts: true, run: func(w *world) {
		w.put("alone")
		w.pass(time.Millisecond)
		members := lonetest.Keys("member", 9)
		w.putAs(mooncake.ReplicateConfig{Replicas: 1, Groups: &[]string{"g"}}, members...)
		w.pass(time.Hour)
		w.get(members[4], errs.OK)
		w.count("evicted beside the group", w.evict(), 1)
		w.count("members left", w.alive(members...), 9)
		w.code("Remove of another member", w.Remove(members[0], false), errs.ObjectHasLease)
		w.pass(time.Hour)
		w.evict() // the loop may find first how old the group is
		w.evict()
		w.count("members left", w.alive(members...), 0)
	}},
	{number: 55, given: "fewer segments than replicas: no round of eviction is asked for", run: func(w *world) {
		w.put("old")
		w.pass(time.Hour)
		_, code := w.PutStart(1, "k", 100, mooncake.ReplicateConfig{Replicas: 3})
		w.code("PutStart", code, errs.OK)
		w.count("evicted", w.evict(), 0)
	}},
}
