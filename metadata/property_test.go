package metadata_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
)

// A world is a cluster with a queue in front of its journal, and with clients that remember the
// answers that they got. Real time goes on when there is no primary; cluster time does not.
type world struct {
	*cluster
	t          *rapid.T
	queue      []queued
	groups     int
	picks      int
	loads      int64
	offset     metadata.Time // real time less cluster time
	users      []user
	removed    map[metadata.ObjectID]bool // acknowledged
	copies     map[diskCopy]bool          // that clients have told of
	onSSD      int64                      // reads that found an object on SSDs alone
	retaken    int64                      // reservations that their own client replaced
	transfers  map[metadata.ObjectID]underWay
	ended      int64                                   // transfers that were complete
	promoted   int64                                   // of them, promotions
	inPlace    int64                                   // upserts that got the memory of the object before
	elsewhere  int64                                   // upserts of readable objects that did not
	leased     map[metadata.ObjectID]metadata.Time     // by readers of this primary
	grouped    int64                                   // groups of several members that were evicted
	overQuota  int64                                   // puts that their tenant's quota refused
	evictedFor int64                                   // objects evicted for their tenant
	tasks      map[metadata.TaskID]metadata.TaskStatus // that were acknowledged, and have not ended
	lastTask   uint64
	doneTasks  int64
	drained    int64 // drain jobs that ended
	forgotten  int64 // files on SSDs that their clients deleted
	mounts     map[byte]bool
	remounts   int64
	search     func()   // ends the search for leases of an unmount, and submits it
	endUnmount func()   // of the unmount under way
	loading    [][]byte // parts of a snapshot taken so far
}

// A queued change is not sealed yet. Changes of one group are dropped together.
type queued struct {
	change metadata.Change
	ack    func(error)
	group  int
	check  func() // runs before and after a commit of this change alone
}

func (w *world) real() metadata.Time { return w.now + w.offset }

func (w *world) submit(ack func(error), changes ...metadata.Change) {
	w.groups++
	for i, change := range changes {
		q := queued{change: change, group: w.groups}
		if i == len(changes)-1 {
			q.ack = ack
		}
		w.queue = append(w.queue, q)
	}
}

// commitPrefix seals and commits the first n changes of the queue.
func (w *world) commitPrefix(n int) {
	for i, q := range w.queue[:n] {
		if check := q.check; check != nil {
			w.commitPrefix(i)
			w.queue[0].check = nil
			check()
			w.commitPrefix(1)
			check()
			n -= i + 1
			break // there is one pass at a time
		}
	}
	sealed := w.queue[:n]
	w.queue = slices.Clone(w.queue[n:])
	changes := make([]metadata.Change, n)
	for i, q := range sealed {
		changes[i] = q.change
	}
	answers := w.commit(changes...)
	for i, q := range sealed {
		if q.ack != nil {
			q.ack(answers[i])
		}
	}
}

// drop aborts the changes of a group, whose caller is gone.
func (w *world) drop(group int) {
	w.queue = slices.DeleteFunc(w.queue, func(q queued) bool {
		if q.group != group {
			return false
		}
		q.change.Abort(w.primary)
		return true
	})
}

var quick = metadata.Params{
	LeaseTTL:       100 * time.Millisecond,
	DiscardTimeout: 300 * time.Millisecond,
	ReleaseTimeout: 600 * time.Millisecond,
}

func newWorld(t *rapid.T) *world {
	w := &world{
		cluster: newClusterOf(t, metadata.InSlices(2), quick), t: t,
		removed: map[metadata.ObjectID]bool{}, copies: map[diskCopy]bool{}, mounts: map[byte]bool{},
		transfers: map[metadata.ObjectID]underWay{}, leased: map[metadata.ObjectID]metadata.Time{},
		tasks: map[metadata.TaskID]metadata.TaskStatus{},
	}
	w.mount(1, "a", 300)
	w.mount(2, "b", 300)
	w.mounts[1], w.mounts[2] = true, true
	return w
}

func (w *world) key(t *rapid.T) string { return fmt.Sprint(w.pick(t, "key", 8)) }

func (w *world) putStartAction(t *rapid.T) {
	tenant := w.tenant(t)
	put := &metadata.Put{
		Tenant: tenant, Metered: tenant != "default", Key: w.key(t), Client: client(byte(1 + w.pick(t, "client", 2))),
		Size: 1 + uint64(w.pick(t, "size", 90)), Replicas: 1 + w.pick(t, "replicas", 2),
		Request: uint64(w.pick(t, "request", 4)), HardPin: w.pick(t, "hard", 10) == 0,
		SoftPin:    time.Duration(w.pick(t, "soft", 2)) * time.Second,
		Unnumbered: w.pick(t, "unnumbered", 2) == 0,
		Upsert:     w.pick(t, "upsert", 3) == 0, KeepSoftPin: w.pick(t, "keep", 2) == 0,
	}
	put.Group = groupOf(put.Key)
	if w.pick(t, "disk", 4) == 0 {
		put.DiskPath = "/d/" + put.Key
	}
	old, _ := w.primary.Inspect(tenant, put.Key)
	if old.ID != 0 && w.pick(t, "same size", 4) > 0 {
		put.Size = old.Size
	}
	e, _, _, err := w.primary.PreparePutStart(put, w.now)
	if errs.KindOf(err) == errs.TenantQuotaExceeded {
		w.overQuota++
	}
	if e == nil {
		return
	}
	if old.ID != 0 && w.now.Sub(old.PutStart) < quick.DiscardTimeout && (!put.Upsert || put.Unnumbered && old.Client == put.Client && !e.Upsert) {
		if !put.Unnumbered || old.Client != put.Client {
			t.Fatalf("client %v: got its put in place of %v of client %v, want that kept until its time",
				put.Client, old.ID, old.Client)
		}
		w.retaken++
	}
	if w.pick(t, "gone", 4) == 0 { // its caller does not wait for the answer
		w.primary.Abandon(tenant, put.Key, e.ID)
	}
	start := w.real()
	w.submit(func(err error) {
		if err != nil {
			return
		}
		if e.Replaces != 0 {
			w.removed[e.Replaces] = true
		}
		if e.InPlace {
			w.inPlace++
		} else if e.Upsert {
			w.elsewhere++
		}
		o, err := w.primary.Inspect(tenant, put.Key)
		if err != nil {
			return // unmounted in the same commit
		}
		memory := slices.DeleteFunc(o.Replicas, func(d metadata.Descriptor) bool { return d.Kind != metadata.Memory })
		w.use(user{id: o.ID, ranges: rangesOf(memory, 0), until: start.Add(quick.ReleaseTimeout), writer: true})
	}, e)
}

func (w *world) putEndAction(t *rapid.T) {
	ref := metadata.PutRef{Tenant: w.tenant(t), Key: w.key(t), Client: client(1), Selector: metadata.SelectMemory}
	if o, err := w.primary.Inspect(ref.Tenant, ref.Key); err == nil && w.pick(t, "stranger", 8) > 0 {
		ref.Client = o.Client
	}
	if w.pick(t, "disk", 4) == 0 {
		ref.Selector = metadata.SelectDisk
	}
	if w.pick(t, "end", 6) > 0 {
		if e, _, _ := w.primary.PreparePutEnd(ref, nil); e != nil {
			w.submit(func(err error) {
				if err == nil && ref.Selector == metadata.SelectMemory {
					w.dropWriters(e.ID)
				}
			}, e)
		}
		return
	}
	switch r, _, _ := w.primary.PreparePutRevoke(ref); {
	case r.Removal != nil:
		w.submit(nil, &deleteevents.Event{Type: deleteevents.PutRevoke, Removals: []*metadata.Removal{r.Removal}})
	case r.Partial != nil:
		w.submit(nil, r.Partial)
	}
}

func (w *world) dropWriters(id metadata.ObjectID) {
	w.users = slices.DeleteFunc(w.users, func(u user) bool { return u.writer && u.id == id })
}

func (w *world) getAction(t *rapid.T) { w.get(w.tenant(t), w.key(t), t) }

func (w *world) get(tenant, key string, t *rapid.T) {
	list, _, err := leases(w.primary).GetReplicaList(tenant, key, w.now)
	if err != nil || len(list.Replicas) == 0 {
		return
	}
	if w.removed[list.ID] {
		t.Fatalf("X: object %v was removed: got it from a read, want it never to come back", list.ID)
	}
	w.checkCopies(t, list)
	w.leased[list.ID] = w.now.Add(quick.HoldTime())
	memory := slices.DeleteFunc(list.Replicas, func(d metadata.Descriptor) bool { return d.Kind != metadata.Memory })
	// The reader's clock may be slow by one part in a thousand, the primary's
	// fast by as much.
	slack := list.LeaseTTL / 500
	w.use(user{id: list.ID, ranges: rangesOf(memory, 0), until: w.real().Add(list.LeaseTTL + slack)})
}

func (w *world) removeAction(t *rapid.T) {
	e, _, _ := deleteevents.Prepare(w.primary, deleteevents.Request{
		Tenant: w.tenant(t), Key: w.key(t), Force: w.pick(t, "force", 2) == 0,
		ID: uint64(w.pick(t, "request", 6)) * 1000,
	}, w.now)
	if e != nil {
		id := e.Removals[0].ID
		w.submit(func(err error) {
			if errs.KindOf(err) == errs.OK {
				w.removed[id] = true
			}
		}, e)
	}
}

func (w *world) removeAllAction(t *rapid.T) {
	event, force := &deleteevents.Event{Type: deleteevents.RemoveAll}, w.pick(t, "force", 2) == 0
	for i := range metadata.ShardCount {
		w.primary.EachObject(i, nil, func(e metadata.Entry) {
			if e.Tenant() == "default" && !e.Busy() && e.Removable(force, w.now) == nil {
				event.Removals = append(event.Removals, e.BeginRemoval(w.now))
			}
		})
	}
	if len(event.Removals) > 0 {
		w.submit(nil, event)
	}
}

func (w *world) evictAction(t *rapid.T) {
	for _, q := range w.queue {
		if _, ok := q.change.(*eviction.Cutoff); ok {
			return // one pass at a time
		}
	}
	pass := eviction.Select(w.primary, eviction.Bounds{
		Objects: 1 + w.pick(t, "quota", 4), IncludePinned: w.pick(t, "pinned", 2) == 0,
	})
	if pass != nil {
		w.submit(nil, append(leasesync.Pack(pass.NearMisses), pass.Cutoff)...)
		w.queue[len(w.queue)-1].check = w.watchGroups(pass.Cutoff)
	}
}

// takeOverAction loses the primary, or demotes it to a follower.
func (w *world) takeOverAction(t *rapid.T) {
	old, queue := w.primary, w.queue
	w.queue, w.loading, w.search = nil, nil, nil
	clear(w.leased)
	gap := metadata.Time(w.pick(t, "gap", 51))
	real := w.real() + gap
	w.cluster.primary = w.follower
	w.now = w.primary.Position().Time
	w.offset = real - w.now
	if w.pick(t, "demoted", 2) == 0 {
		for _, q := range queue {
			q.change.Abort(old)
		}
		old.DropOverlay()
		w.follower = old
	} else {
		w.follower = w.replay()
	}
	w.startTerm(quick, quick.HoldTime())
}

func (w *world) snapshotAction(t *rapid.T) {
	n := 1 + w.pick(t, "parts", metadata.SnapshotParts)
	for ; n > 0 && len(w.loading) < metadata.SnapshotParts; n-- {
		part, _ := w.primary.AppendSnapshotPart(nil, len(w.loading))
		w.loading = append(w.loading, part)
	}
	if len(w.loading) < metadata.SnapshotParts {
		return
	}
	s, err := w.load(w.loading)
	if err != nil {
		t.Fatalf("loading a snapshot: got %v, want no error", err)
	}
	w.loading = nil
	last, err2 := s.Position(), error(nil)
	for seq := last.Seq + 1; seq <= w.seq; seq++ {
		last, err2 = s.Apply(w.recode(w.log[seq-1]), nil)
		if err2 != nil {
			t.Fatalf("applying commit %d on a loaded snapshot: got %v, want no error", seq, err2)
		}
	}
	if want := w.primary.Position(); last != want {
		t.Fatalf("S: a node that loaded a snapshot is at %+v, want it at the primary's position, %+v", last, want)
	}
	w.follower = s
	w.loads++
}

// pick draws a number in [0, n), evenly: rapid's own ranges favour small ones.
func (w *world) pick(t *rapid.T, label string, n int) int {
	w.picks++
	return int(xxh3.HashString(fmt.Sprint(rapid.Uint32().Draw(t, label), w.picks)) % uint64(n))
}

// An action and how often it is chosen, relative to the others.
type action struct {
	weight int
	name   string
	run    func(*rapid.T)
}

func (w *world) actions() []action {
	return []action{
		{30, "putStart", w.putStartAction},
		{25, "putEnd", w.putEndAction},
		{40, "get", w.getAction},
		{4, "exists", func(t *rapid.T) { leases(w.primary).Exists("default", w.key(t), w.now) }},
		{6, "remove", w.removeAction},
		{1, "removeAll", w.removeAllAction},
		{12, "evict", w.evictAction},
		{3, "segment", w.segmentAction},
		{4, "localDisk", w.localDiskAction},
		{20, "offloaded", w.offloadedAction},
		{3, "abandon", w.abandonAction},
		{10, "evictDisk", w.evictDiskAction},
		{6, "task", w.taskAction},
		{16, "transfer", w.transferAction},
		{16, "promotion", w.promotionAction},
		{16, "transferEnd", w.transferEndAction},
		{3, "quota", w.quotaAction},
		{3, "evictTenant", w.evictTenantAction},
		{2, "takeOver", w.takeOverAction},
		{3, "snapshot", w.snapshotAction},
		{1, "sweep", func(t *rapid.T) { w.primary.Sweep(w.pick(t, "shards", 1500)) }},
		{1, "tidy", func(t *rapid.T) { w.primary.Tidy(w.pick(t, "objects", 5)) }},
		{6, "scan", func(*rapid.T) { w.submit(nil, marked(w.primary)...) }},
		{8, "pass", func(t *rapid.T) { w.now += metadata.Time(1 + w.pick(t, "ms", 150)) }},
		{8, "tick", func(t *rapid.T) { w.now += metadata.Time(w.pick(t, "ms", 3)) }},
		{3, "discard", func(*rapid.T) {
			for _, e := range w.primary.PrepareDiscards(w.now, 2) {
				w.submit(nil, e)
			}
			for _, e := range w.primary.PrepareTransferTimeouts(w.now, 2) {
				w.submit(nil, e)
			}
		}},
		{2, "drop", func(t *rapid.T) {
			if len(w.queue) > 0 {
				w.drop(w.queue[w.pick(t, "which", len(w.queue))].group)
			}
		}},
		{15, "commit", func(t *rapid.T) { w.commitPrefix(w.pick(t, "n", len(w.queue)+1)) }},
		{15, "commitAll", func(*rapid.T) { w.commitPrefix(len(w.queue)) }},
	}
}

// TestNodesAgreeAndBytesAreSafe drives a primary and a follower through random histories.
// After every commit both have the same digest. Ranges never overlap (allocators refuse it).
// No range is given out that a reader or a late writer may still use. Removed objects stay
// removed.
func TestNodesAgreeAndBytesAreSafe(t *testing.T) {
	reached := map[string]int64{}
	history := func(t *rapid.T) {
		w := newWorld(t)
		actions, total := w.actions(), 0
		for _, a := range actions {
			total += a.weight
		}
		for range w.pick(t, "steps", 600) {
			n := w.pick(t, "action", total)
			for _, a := range actions {
				if n -= a.weight; n < 0 {
					a.run(t)
					w.settle()
					w.checkTransfers(t)
					w.checkQuotas(t)
					w.checkTasks(t)
					break
				}
			}
		}
		st := w.primary.Stats()
		reached["segments mounted again"] += w.remounts
		reached["complete copies and moves"] += w.ended - w.promoted
		reached["complete promotions"] += w.promoted
		reached["copies on SSDs"] += st.LocalReplicas
		reached["reads of objects on SSDs alone"] += w.onSSD
		reached["reservations replaced by their own client"] += w.retaken
		reached["evicted groups"] += w.grouped
		reached["upserts in place"] += w.inPlace
		reached["upserts in other memory"] += w.elsewhere
		reached["tasks that ended"] += w.doneTasks
		reached["drain jobs that ended"] += w.drained
		reached["files that their clients deleted"] += w.forgotten
		reached["puts refused by a quota"] += w.overQuota
		reached["evictions for a tenant"] += w.evictedFor
		for what, n := range map[string]int64{
			"evictions": st.Evicted, "ranges that left quarantine": st.QuarantineExits, "discards": st.Discarded,
			"removals": int64(len(w.removed)), "takeovers": int64(w.term) - 1, "snapshots": w.loads, "readers": int64(len(w.users)),
		} {
			reached[what] += n
		}
	}
	const most = 20
	unreached := func() bool { return slices.Contains(slices.Collect(maps.Values(reached)), 0) }
	for round := 0; round < 2 || round < most && unreached() && !t.Failed(); round++ { // two rounds miss a rare thing once in twenty times
		rapid.Check(t, history)
	}
	for what, n := range reached {
		if n == 0 {
			t.Errorf("the histories had no %s, want some, so that they are tested", what)
		}
	}
	t.Logf("reached %v", reached)
}
