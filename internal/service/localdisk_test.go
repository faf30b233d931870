package service_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// offloading turns the SSD tier on, with room for limit objects a client.
func offloading(limit int) func(*service.Master) {
	return func(c *service.Master) { c.Offload, c.OffloadQueue = true, limit }
}

// nextTerm is the master of a new primary: its own memory is empty.
func (f *fixture) nextTerm() *service.Master { return service.NewMaster(*f.Master) }

func (f *fixture) mountDisk(t *testing.T, n byte, on bool) {
	t.Helper()
	if err := f.MountLocalDisk(t.Context(), owner(n), on); err != nil {
		t.Fatal(err)
	}
}

// tasks takes what waits for client 1 and returns its keys.
func tasks(t *testing.T, m *service.Master) (keys []string) {
	t.Helper()
	list, err := m.OffloadHeartbeat(t.Context(), owner(1), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range list {
		if task.Tenant != metadata.DefaultTenant || task.Size != 100 {
			t.Errorf("task %+v; want 100 bytes of the default tenant", task)
		}
		keys = append(keys, task.Key)
	}
	return keys
}

func wantKeys(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func copied(keys ...string) (list []service.OffloadResult) {
	for _, key := range keys {
		list = append(list, service.OffloadResult{
			Task: service.OffloadTask{Tenant: metadata.DefaultTenant, Key: key, Size: 100}, DataSize: 100, Endpoint: "ssd:1",
		})
	}
	return list
}

// onDisk returns the owners of an object's copies on SSDs.
func (f *fixture) onDisk(key string) (owners []segment.ClientID) {
	o, _ := f.Store.Inspect(metadata.DefaultTenant, key)
	for _, r := range o.Replicas {
		if r.Kind == metadata.LocalDisk {
			owners = append(owners, r.Client)
		}
	}
	return owners
}

func TestOffload(t *testing.T) {
	f := newFixture(t, offloading(100))
	ctx := t.Context()
	f.put(t, "early")
	f.mountDisk(t, 1, true)
	f.put(t, "a", "b", "gone", "refused", "wrong", "long")
	want(t, "remove", f.Remove(ctx, service.RemoveRequest{Tenant: "default"}, "gone"), errs.OK)
	wantKeys(t, "given", tasks(t, f.Master), "a", "b", "refused", "wrong", "long")
	wantKeys(t, "given once more", tasks(t, f.Master))

	done := copied("a", "gone", "b", "b", "never", "early")
	refused := copied("refused", "wrong", "long")
	refused[0].Refused, refused[0].DataSize = true, 1
	refused[1].DataSize = 99
	refused[2].Endpoint = strings.Repeat("x", metadata.MaxNameBytes+1)
	want(t, "copies", f.NotifyOffloaded(ctx, owner(1), done), errs.OK)
	want(t, "copies, told twice", f.NotifyOffloaded(ctx, owner(1), done), errs.OK)
	want(t, "nothing", f.NotifyOffloaded(ctx, owner(1), nil), errs.OK)
	want(t, "a refusal", f.NotifyOffloaded(ctx, owner(1), refused[:1]), errs.OK)
	want(t, "another size", f.NotifyOffloaded(ctx, owner(1), refused[1:2]), errs.InvalidParams)
	want(t, "a long endpoint", f.NotifyOffloaded(ctx, owner(1), refused[2:]), errs.InvalidParams)
	want(t, "too many", f.NotifyOffloaded(ctx, owner(1), make([]service.OffloadResult, service.MaxBatchItems+1)), errs.InvalidParams)
	want(t, "a stranger's", f.NotifyOffloaded(ctx, owner(2), done), errs.SegmentNotFound)
	for key, there := range map[string]bool{"a": true, "b": true, "early": false, "refused": false, "wrong": false, "long": false} {
		if owners := f.onDisk(key); slices.Contains(owners, owner(1)) != there || len(owners) > 1 {
			t.Errorf("%s has copies of %v; want one of owner 1: %v", key, owners, there)
		}
	}
	want(t, "what was refused", f.NotifyOffloaded(ctx, owner(1), copied("refused")), errs.OK)
	mixed := slices.Concat(refused[1:2], copied("long"))
	want(t, "one of two is wrong", f.NotifyOffloaded(ctx, owner(1), mixed), errs.InvalidParams)
	if len(f.onDisk("refused")) != 0 {
		t.Errorf("a copy without a task: got it on disks of %v, want it refused", f.onDisk("refused"))
	}
	if len(f.onDisk("long")) != 1 {
		t.Errorf("a copy behind one that is wrong: got it on disks of %v, want it on one", f.onDisk("long"))
	}
}

// What a client is copying is remembered, however much it has copied before, so
// that a copy of an older object is not taken for one of a newer.
func TestCopiesInFlightAreRemembered(t *testing.T) {
	f := newFixture(t, offloading(100))
	f.mountDisk(t, 1, true)
	for round := range 3 {
		var keys []string
		for i := range 90 {
			keys = append(keys, fmt.Sprint(round, "-", i))
		}
		f.put(t, keys...)
		given := tasks(t, f.Master)
		if round < 2 {
			want(t, "copies", f.NotifyOffloaded(t.Context(), owner(1), copied(given...)), errs.OK)
			continue
		}
		for _, key := range given {
			want(t, "remove", f.Remove(t.Context(), service.RemoveRequest{Tenant: "default"}, key), errs.OK)
		}
		f.put(t, given...)
		want(t, "older copies", f.NotifyOffloaded(t.Context(), owner(1), copied(given...)), errs.OK)
		for _, key := range given {
			if len(f.onDisk(key)) > 0 {
				t.Fatalf("%s: got a copy on %v, want none: it is of the object before it", key, f.onDisk(key))
			}
		}
	}
}

// What a client was told to copy is not what lies under the key by now.
func TestCopyOfAnOlderObject(t *testing.T) {
	f := newFixture(t, offloading(100))
	f.mountDisk(t, 1, true)
	f.put(t, "k")
	wantKeys(t, "given", tasks(t, f.Master), "k")
	want(t, "remove", f.Remove(t.Context(), service.RemoveRequest{Tenant: "default"}, "k"), errs.OK)
	f.put(t, "k")
	want(t, "the older copy", f.NotifyOffloaded(t.Context(), owner(1), copied("k")), errs.OK)
	if n := len(f.onDisk("k")); n != 0 {
		t.Fatalf("an older object's copy: got %d copies of the new object, want 0", n)
	}
	wantKeys(t, "given", tasks(t, f.Master), "k")
	want(t, "its own copy", f.NotifyOffloaded(t.Context(), owner(1), copied("k")), errs.OK)
	if n := len(f.onDisk("k")); n != 1 {
		t.Errorf("the object's own copy: got %d copies, want 1", n)
	}
	want(t, "remove", f.Remove(t.Context(), service.RemoveRequest{Tenant: "default"}, "k"), errs.OK)
	f.put(t, "k")
	want(t, "its copy, told once more", f.NotifyOffloaded(t.Context(), owner(1), copied("k")), errs.OK)
	if n := len(f.onDisk("k")); n != 0 {
		t.Errorf("a copy reported again, after another put: got %d copies of the later object, want 0", n)
	}
}

// A client asks for tasks before it has reported a copy, as one with two threads may: it gets
// none for a later object of that key, as its report names the key alone.
func TestNextTaskBeforeTheReport(t *testing.T) {
	f := newFixture(t, offloading(100))
	f.mountDisk(t, 1, true)
	again := func() {
		t.Helper()
		want(t, "remove", f.Remove(t.Context(), service.RemoveRequest{Tenant: "default"}, "k"), errs.OK)
		f.put(t, "k")
	}
	f.put(t, "k")
	wantKeys(t, "given", tasks(t, f.Master), "k")
	again()
	wantKeys(t, "before the report", tasks(t, f.Master))
	want(t, "the older copy", f.NotifyOffloaded(t.Context(), owner(1), copied("k")), errs.OK)
	if n := len(f.onDisk("k")); n != 0 {
		t.Fatalf("an older object's copy: got %d copies of the new object, want 0", n)
	}
	again()
	wantKeys(t, "behind the report", tasks(t, f.Master), "k")
	want(t, "its own copy", f.NotifyOffloaded(t.Context(), owner(1), copied("k")), errs.OK)
	if n := len(f.onDisk("k")); n != 1 {
		t.Errorf("the object's own copy: got %d copies, want 1", n)
	}
}

func TestOffloadingIsBounded(t *testing.T) {
	f := newFixture(t, offloading(3))
	f.mountDisk(t, 1, true)
	f.put(t, lonetest.Keys("k", 5)...)
	wantKeys(t, "past the limit", tasks(t, f.Master), "k0", "k1", "k2")
	f.put(t, "more")
	wantKeys(t, "room again", tasks(t, f.Master), "more")
	if err := f.NotifyOffloaded(t.Context(), owner(1), copied("k1", "k2", "more")); err != nil {
		t.Fatal(err)
	}
	next := f.nextTerm()
	if err := next.RefillOffloads(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := tasks(t, next)
	slices.Sort(got)
	wantKeys(t, "what has no copy, in the next term", got, "k0", "k3", "k4")
	if err := next.RefillOffloads(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, "queued once more, as by a put that ends meanwhile", tasks(t, next))
}

// One answer fits a message; the rest comes with the next.
func TestOffloadAnswersAreBounded(t *testing.T) {
	f := newFixture(t, offloading(10_000))
	f.mountDisk(t, 1, true)
	const n = 300
	keys := lonetest.Keys(strings.Repeat("x", 4000), n)
	f.put(t, keys...)
	first := tasks(t, f.Master)
	if size := len(strings.Join(first, "")); size < 1<<20 || size > 1<<20+5000 {
		t.Errorf("an answer of %d keys with %d bytes, want 1 MiB and a little", len(first), size)
	}
	if rest := tasks(t, f.Master); len(first)+len(rest) != n {
		t.Errorf("%d and %d of %d, want all of them", len(first), len(rest), n)
	}
}

func TestOffloadingSwitches(t *testing.T) {
	f := newFixture(t, offloading(100))
	ctx := t.Context()
	_, err := f.OffloadHeartbeat(ctx, owner(1), true)
	want(t, "without an SSD", err, errs.SegmentNotFound)
	f.mountDisk(t, 1, false)
	f.mountDisk(t, 2, true)
	f.put(t, "off")
	wantKeys(t, "put while it was off", tasks(t, f.Master)) // and on
	f.put(t, "on")
	list, err := f.OffloadHeartbeat(ctx, owner(1), false)
	if err != nil || len(list) != 0 {
		t.Errorf("switched off: got %v, %v; want no entries and no error", list, err)
	}
	f.put(t, "off again")
	wantKeys(t, "what came while it was on", tasks(t, f.Master), "on")
	next := f.nextTerm()
	if err := next.RefillOffloads(ctx); err != nil {
		t.Error(err)
	}
	if got := tasks(t, next); len(got) != 3 {
		t.Errorf("a new term finds %v, want 3 entries", got)
	}
	want(t, "unmounted", f.UnmountLocalDisk(ctx, owner(1)), errs.OK)
	want(t, "unmounted twice", f.UnmountLocalDisk(ctx, owner(1)), errs.OK)
	f.put(t, "later")
	_, err = f.OffloadHeartbeat(ctx, owner(1), true)
	want(t, "of an SSD that is gone", err, errs.SegmentNotFound)
	f.mountDisk(t, 1, true)
	wantKeys(t, "a queue of before", tasks(t, f.Master))
}

// An SSD makes its owner a client that must send Pings, in later terms too.
func TestSSDsOfSilentClients(t *testing.T) {
	f := newFixture(t, offloading(100))
	f.mountDisk(t, 1, true)
	f.mountDisk(t, 2, true)
	// Not by a call, which would make the client known.
	mount, err := f.Store.PrepareMount(other())
	if err != nil {
		t.Fatal(err)
	}
	f.p.Commit(mount)
	f.p.Put(func(p *metadata.Put) { p.Replicas = 2 }, "both")
	f.put(t, "one")
	if err := f.RefillOffloads(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n, keys := range map[byte][]string{1: {"both", "one"}, 2: {"both"}} {
		if _, err := f.OffloadHeartbeat(t.Context(), owner(n), true); err != nil {
			t.Fatal(err)
		}
		want(t, "copies", f.NotifyOffloaded(t.Context(), owner(n), copied(keys...)), errs.OK)
	}
	f.p.Unmount(other().ID)
	next := service.NewLiveness(10*time.Second, 0, func() time.Duration { return 0 }, f.Store)
	for what, l := range map[string]*service.Liveness{"this term": f.Liveness, "the next one": next} {
		if l.Active() != 2 || !l.Ping(owner(1)) || l.Ping(owner(2)) {
			t.Errorf("in %s: got %d clients, want 2: owner 1 known, and owner 2, with an SSD alone, asked to remount", what, l.Active())
		}
	}
	want(t, "remount", f.ReMountSegment(t.Context(), owner(2), nil), errs.OK)
	f.mountDisk(t, 2, true)
	if !f.Liveness.Ping(owner(2)) {
		t.Error("a known client mounts an SSD: got a ping that asks it to remount, want it still known")
	}
	if n, err := f.ExpireClient(t.Context(), owner(1), never); n != 1 || err != nil {
		t.Errorf("%d segments, %v; want 1 and no error", n, err)
	}
	if !slices.Equal(f.onDisk("both"), []segment.ClientID{owner(2)}) {
		t.Errorf("copies of %v are left, want owner 2's", f.onDisk("both"))
	}
	for key, there := range map[string]bool{"both": true, "one": false} {
		if ok, err := f.ExistKey(t.Context(), "default", key); ok != there || err != nil {
			t.Errorf("%s exists: %v, %v; want %v", key, ok, err, there)
		}
	}
	if _, err := f.OffloadHeartbeat(t.Context(), owner(1), true); errs.KindOf(err) != errs.SegmentNotFound {
		t.Errorf("the SSD of an expired client: got %v, want SegmentNotFound", err)
	}
}

func TestOffloadingTurnedOff(t *testing.T) {
	f := newFixture(t)
	want(t, "mount", f.MountLocalDisk(t.Context(), owner(1), true), errs.OffloadDisabled)
	want(t, "unmount of what cannot be there", f.UnmountLocalDisk(t.Context(), owner(1)), errs.OffloadDisabled)
	// An SSD from a term in which it was on.
	f.p.Commit(f.Store.PrepareMountLocalDisk(owner(1), true))
	off := f.nextTerm()
	f.put(t, "k")
	if err := off.RefillOffloads(t.Context()); err != nil {
		t.Error(err)
	}
	wantKeys(t, "given", tasks(t, off))
	want(t, "a copy", off.NotifyOffloaded(t.Context(), owner(1), copied("k")), errs.OK)
	if len(f.onDisk("k")) != 0 {
		t.Errorf("a copy while offloading is off: got it on disks of %v, want none: nobody was asked for it", f.onDisk("k"))
	}
	want(t, "unmount of that SSD", off.UnmountLocalDisk(t.Context(), owner(1)), errs.OK)
	want(t, "unmount of none", off.UnmountLocalDisk(t.Context(), owner(1)), errs.OffloadDisabled)
}

// Whatever happens at once, no copy is left on an SSD that is gone, and none of
// an object that is.
func TestOffloadingAtOnce(t *testing.T) {
	f := newFixture(t, offloading(50))
	f.mountDisk(t, 1, true)
	keys := lonetest.Keys("k", 20)
	var g sync.WaitGroup
	for _, work := range []func() error{
		func() error {
			for _, key := range keys {
				if _, err := f.PutStart(t.Context(), start(1), service.PutItem{Key: key, Size: 100}); err == nil {
					_ = f.PutEnd(t.Context(), update(1), service.UpdateItem{Key: key})
				}
			}
			return nil
		},
		func() error {
			_, err := f.RemoveAll(t.Context(), service.RemoveRequest{Force: true})
			return err
		},
		func() error {
			list, err := f.OffloadHeartbeat(t.Context(), owner(1), true)
			if err != nil || len(list) == 0 {
				return err
			}
			done := make([]service.OffloadResult, len(list))
			for i, task := range list {
				done[i] = service.OffloadResult{Task: task, DataSize: task.Size, Endpoint: "ssd:1"}
			}
			return f.NotifyOffloaded(t.Context(), owner(1), done)
		},
		func() error {
			if err := f.UnmountLocalDisk(t.Context(), owner(1)); err != nil {
				return err
			}
			return f.MountLocalDisk(t.Context(), owner(1), true)
		},
		func() error { return f.RefillOffloads(t.Context()) },
	} {
		g.Go(func() {
			for range 10 {
				switch err := work(); errs.KindOf(err) {
				case errs.OK, errs.SegmentNotFound: // between an unmount and a mount
				default:
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
	want(t, "unmount", f.UnmountLocalDisk(t.Context(), owner(1)), errs.OK)
	for _, key := range keys {
		if owners := f.onDisk(key); len(owners) > 0 {
			t.Errorf("%s: got copies of %v, want none: their SSD was unmounted", key, owners)
		}
	}
}

func TestFencedLocalDisks(t *testing.T) {
	f := newFixture(t, offloading(100))
	f.mountDisk(t, 1, true)
	f.fenced.Store(true)
	ctx := t.Context()
	_, beat := f.OffloadHeartbeat(ctx, owner(1), true)
	for i, err := range []error{
		f.MountLocalDisk(ctx, owner(2), true), f.UnmountLocalDisk(ctx, owner(1)), beat, f.NotifyOffloaded(ctx, owner(1), copied("k")),
	} {
		want(t, fmt.Sprint("call ", i), err, errs.NotLeader)
	}
}

// Eviction spares what a client was told to copy until it answers, and for 30 s
// at most: a copy of evicted memory would be refused.
func TestEvictionSparesWhatIsCopied(t *testing.T) {
	f := newFixture(t, offloading(100))
	f.mountDisk(t, 1, true)
	f.put(t, "copied", "refused", "lost", "plain")
	wantKeys(t, "given", tasks(t, f.Master), "copied", "refused", "lost", "plain")
	refused := copied("plain")
	refused[0].Refused = true
	want(t, "refused", f.NotifyOffloaded(t.Context(), owner(1), refused), errs.OK)
	evict := func(what string, alive ...string) {
		t.Helper()
		if pass := eviction.Select(f.Store, eviction.Bounds{Objects: 100}); pass != nil {
			f.p.Commit(leasesync.Pack(pass.NearMisses)...)
			f.p.Commit(pass.Cutoff)
		}
		var left []string
		for _, key := range []string{"copied", "refused", "lost", "plain"} {
			if f.p.Alive(key) > 0 {
				left = append(left, key)
			}
		}
		wantKeys(t, what, left, alive...)
	}
	f.p.Pass(11 * time.Second)
	evict("while three are copied", "copied", "refused", "lost")
	want(t, "a late copy", f.NotifyOffloaded(t.Context(), owner(1), copied("copied")), errs.OK)
	refused[0].Task.Key = "refused"
	want(t, "refused", f.NotifyOffloaded(t.Context(), owner(1), refused), errs.OK)
	f.p.Pass(11 * time.Second)
	evict("when two have an answer", "copied", "lost") // one on the SSD only
	f.p.Pass(20 * time.Second)
	evict("when no answer has come for long", "copied")
	want(t, "a copy of what was evicted", f.NotifyOffloaded(t.Context(), owner(1), copied("lost")), errs.OK)
	evict("in the end", "copied")
}

// With OffloadOnEvict an object waits for its copy when it would be evicted, which
// spares it once: until it is copied, refused, or nobody has copied it for 30 s.
func TestOffloadOnEvict(t *testing.T) {
	f := newFixture(t, offloading(3), func(c *service.Master) { c.OffloadOnEvict = true })
	f.mountDisk(t, 1, true)
	keys := []string{"copied", "refused", "lost", "plain"}
	f.put(t, keys...)
	loop := eviction.NewLoop(&eviction.Loop{
		Store: f.Store, Journal: f.p.Queue, Policy: eviction.Expiry{}, Now: f.Now, Counters: new(eviction.Counters), Spare: f.SpareForOffload,
	})
	round := func(what string, alive ...string) {
		t.Helper()
		if _, err := loop.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, key := range keys {
			if o, err := f.Store.Inspect(metadata.DefaultTenant, key); err == nil && o.Replicas[0].Kind == metadata.Memory {
				left = append(left, key)
			}
		}
		wantKeys(t, what, left, alive...)
	}
	wantKeys(t, "after their puts", tasks(t, f.Master))
	f.p.Pass(11 * time.Second)
	round("while three wait, for which there is room", "copied", "refused", "lost")
	wantKeys(t, "given", tasks(t, f.Master), "copied", "refused", "lost")
	refused := copied("refused")
	refused[0].Refused = true
	want(t, "refused", f.NotifyOffloaded(t.Context(), owner(1), refused), errs.OK)
	want(t, "copied", f.NotifyOffloaded(t.Context(), owner(1), copied("copied")), errs.OK)
	f.p.Pass(11 * time.Second)
	round("when two have an answer", "lost")
	if owners := f.onDisk("copied"); len(owners) != 1 {
		t.Errorf("what was copied is on the SSDs of %v, want on that of client 1", owners)
	}
	wantKeys(t, "given again", tasks(t, f.Master))
	f.p.Pass(31 * time.Second)
	round("when no answer has come for long")
	next := f.nextTerm()
	f.put(t, "later")
	if err := next.RefillOffloads(t.Context()); err != nil {
		t.Error(err)
	}
	wantKeys(t, "in the next term", tasks(t, next))
}
