package service

import (
	"cmp"
	"context"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
)

// Replication says which objects get another replica in memory because they are read
// often (the C++ master's dynamic replication).
type Replication struct {
	Observe  bool          // only log how many would
	Enforce  bool          // have them copied
	Window   time.Duration // over which reads are counted; at least 1 s
	Rate     float64       // reads a second in a window from which on an object is copied
	Replicas int           // in memory, up to which an object gets more by this
}

// The C++ master's constants.
const (
	hotRest      = time.Minute // between two copies of one object
	hotWatermark = 0.85        // used part of a target that a copy must leave it below
)

const (
	hotSlots   = 1 << 16 // objects whose reads are counted at once
	hotWaiting = 1000    // objects that wait for a copy
	// hotTasks is how many copies are planned with each pass. It leaves room for other
	// tasks even if no client takes those that are planned until they fail.
	hotTasks = 16
)

// hotObjects counts reads, and knows which objects are to be copied. It is a hint of
// the primary's: what is lost with a term comes again with the next reads. The copies
// are tasks, and so part of the state.
type hotObjects struct {
	Replication
	least uint32 // reads in a window
	seed  maphash.Seed

	mu      sync.Mutex // guards all below; the store is not asked under it
	slots   []hotSlot  // by a hash of the object
	waiting []hotObject
	resting map[metadata.ObjectID]metadata.Time // until when it is not copied again
}

// A hotSlot counts the reads of one object, until its window is over. Others with the
// same hash wait for that.
type hotSlot struct {
	id    metadata.ObjectID
	until metadata.Time
	reads uint32
}

type hotObject struct {
	tenant, key string
	id          metadata.ObjectID
	size        uint64
}

// newHotObjects returns nil if nothing is to be counted.
func newHotObjects(rules Replication) *hotObjects {
	if !rules.Observe && !rules.Enforce {
		return nil
	}
	rules.Window = max(rules.Window, time.Second)
	return &hotObjects{
		Replication: rules, least: uint32(max(1, min(math.MaxUint32, math.Ceil(rules.Rate*rules.Window.Seconds())))), seed: maphash.MakeSeed(),
		slots: make([]hotSlot, hotSlots), resting: make(map[metadata.ObjectID]metadata.Time),
	}
}

// read counts a read of an object, and queues the object if it was read often.
func (h *hotObjects) read(tenant, key string, list *metadata.ReplicaList, now metadata.Time) {
	if h == nil {
		return
	}
	replicas := 0
	for i := range list.Replicas {
		if list.Replicas[i].Kind == metadata.Memory {
			replicas++
		}
	}
	if replicas == 0 || replicas >= h.Replicas {
		return
	}
	slot := maphash.Comparable(h.seed, list.ID) % hotSlots
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.slots[slot]
	switch {
	case now >= s.until:
		*s = hotSlot{id: list.ID, until: now.Add(h.Window)}
	case s.id != list.ID:
		return
	}
	if s.reads++; s.reads != h.least || len(h.waiting) >= hotWaiting || h.resting[list.ID] > now {
		return
	}
	h.resting[list.ID] = now.Add(hotRest)
	h.waiting = append(h.waiting, hotObject{strings.Clone(tenant), strings.Clone(key), list.ID, list.Size})
}

// take returns the next objects to copy, and forgets those that have rested.
func (h *hotObjects) take(now metadata.Time) []hotObject {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, until := range h.resting {
		if until <= now {
			delete(h.resting, id)
		}
	}
	n := min(len(h.waiting), hotTasks)
	list := slices.Clone(h.waiting[:n])
	h.waiting = slices.Delete(h.waiting, 0, n)
	return list
}

// copyHot has the owners of objects that are read often copy them.
func (m *Master) copyHot(ctx context.Context, log zerolog.Logger) {
	if m.hot == nil {
		return
	}
	list := m.hot.take(m.Now())
	switch {
	case len(list) == 0:
		return
	case !m.hot.Enforce:
		log.Info().Int("objects", len(list)).Msg("objects are read often; with dynamic_replication_mode=enforce they would be copied")
		return
	}
	segments, tasks := m.Store.Segments(), make([]metadata.Task, 0, len(list))
	for _, o := range list {
		if target := m.hotTarget(o, segments); target != nil {
			target.Busy += o.size // soon
			tasks = append(tasks, metadata.Task{Tenant: o.tenant, Key: o.key, Targets: []string{target.Name}})
		}
	}
	if len(tasks) == 0 {
		return
	}
	created, err := m.createTasks(ctx, "DynamicReplication", tasks)
	for _, o := range created {
		err = cmp.Or(err, o.err)
	}
	if kind := errs.KindOf(err); kind != errs.OK && kind != errs.ObjectNotFound && ctx.Err() == nil {
		log.Warn().Err(err).Int("objects", len(tasks)).Msg("objects that are read often were not all copied")
	}
}

// hotTarget returns where an object is to be copied: to a segment that has room and does
// not have the object, if possible on a host that does not have it either; of several, to
// the one of which the least part is used. It returns nil if there is none, or the object
// has gone or got replicas meanwhile.
func (m *Master) hotTarget(o hotObject, segments []metadata.SegmentStats) (best *metadata.SegmentStats) {
	holders, err := m.Store.Holders(o.tenant, o.key)
	if err != nil || len(holders) == 0 || len(holders) >= m.hot.Replicas {
		return nil
	}
	holds := func(s *metadata.SegmentStats) bool {
		return slices.ContainsFunc(holders, func(h metadata.Holder) bool { return h.Name == s.Name })
	}
	var hosts []string
	for i := range segments {
		if s := &segments[i]; holds(s) && s.HostID != "" {
			hosts = append(hosts, s.HostID)
		}
	}
	used := func(s *metadata.SegmentStats) float64 { return float64(s.Busy) / float64(s.Capacity) }
	near := func(s *metadata.SegmentStats) int { // 1 on a host that has the object
		if slices.Contains(hosts, s.HostID) {
			return 1
		}
		return 0
	}
	for i := range segments {
		s := &segments[i]
		if s.Closed || s.Capacity == 0 || holds(s) || float64(s.Busy+o.size)/float64(s.Capacity) >= hotWatermark {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(near(s), near(best)), cmp.Compare(used(s), used(best)), cmp.Compare(s.Name, best.Name)) < 0 {
			best = s
		}
	}
	return best
}
