package service

import (
	"context"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
)

// drainRetries is how often the move of an object may fail (C++ master).
const drainRetries = 3

// drains is what a primary remembers of drain jobs beside the state. A later one
// counts failures anew.
type drains struct {
	mu   sync.Mutex // guards the map, and the counts of blocked objects
	jobs map[metadata.TaskID]*drainProgress
}

// drainProgress is used by the loop alone, but for what is guarded.
type drainProgress struct {
	moving   map[metadata.TaskID]unit // tasks that this primary has created
	failures map[unit]int
	blocked  int // objects that cannot be moved now; guarded by drains.mu
	empty    int // rounds, one after the other, in which no object was there
}

// A unit is an object on a segment.
type unit struct{ tenant, key, source string }

func (d *drains) of(id metadata.TaskID) *drainProgress {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.jobs[id]
	if p == nil {
		p = &drainProgress{moving: make(map[metadata.TaskID]unit), failures: make(map[unit]int)}
		d.jobs[id] = p
	}
	return p
}

// A DrainInfo is a drain job as of now.
type DrainInfo struct {
	metadata.Drain
	Active       int // moves under way
	Blocked      int // objects that could not be moved when they were looked at last
	SinceCreated metadata.Time
	SinceUpdated metadata.Time
}

// CreateDrainJob has all objects on segments moved to others by their owners. The
// segments take no new objects from now on. Errors: those of
// metadata.Store.PrepareDrain.
func (m *Master) CreateDrainJob(ctx context.Context, d metadata.Drain) (metadata.TaskID, error) {
	d.ID = metadata.TaskID(uuid.New())
	err := m.withSegments(ctx, func(ctx context.Context) error {
		return m.withTasks(ctx, func(ctx context.Context) error {
			return m.commitOne(ctx, 32<<10, func() (metadata.Change, error) {
				e, err := m.Store.PrepareDrain(d)
				if e == nil {
					return nil, err
				}
				return e, nil
			})
		})
	})
	return d.ID, err
}

// QueryDrainJob returns a drain job. It fails with JobNotFound.
func (m *Master) QueryDrainJob(ctx context.Context, id metadata.TaskID) (DrainInfo, error) {
	for _, d := range m.Store.Drains() {
		if d.ID != id {
			continue
		}
		p, now := m.drains.of(id), m.Now()
		m.drains.mu.Lock()
		blocked := p.blocked
		m.drains.mu.Unlock()
		return DrainInfo{d, len(m.Store.OpenMoves(&d)), blocked, now - d.Created, now - d.Updated}, m.Fence(ctx)
	}
	return DrainInfo{}, m.fenced(ctx, errs.JobNotFound)
}

// CancelDrainJob ends a drain job; its segments take objects again. Errors:
// JobNotFound, Unavailable if the job has ended, or while objects are moved.
func (m *Master) CancelDrainJob(ctx context.Context, id metadata.TaskID) error {
	return m.withTasks(ctx, func(ctx context.Context) error {
		info, err := m.QueryDrainJob(ctx, id)
		switch {
		case err != nil:
			return err
		case info.Status != metadata.DrainRunning || info.Active > 0:
			return errs.New(errs.Unavailable, "CancelDrainJob", "the job is %v, and %d objects are being moved", info.Status, info.Active)
		}
		return m.endDrain(ctx, info.Drain, metadata.DrainCanceled, "Drain job canceled")
	})
}

// endDrain ends a job. The caller has the place of tasks.
func (m *Master) endDrain(ctx context.Context, d metadata.Drain, status metadata.DrainStatus, message string) error {
	d.Status, d.Message = status, message
	err := m.commitOne(ctx, 32<<10, func() (metadata.Change, error) { return &metadata.SaveDrain{Drain: d}, nil })
	if err == nil {
		m.drains.mu.Lock()
		delete(m.drains.jobs, d.ID)
		m.drains.mu.Unlock()
	}
	return err
}

// drive looks at the drain jobs that run.
func (m *Master) drive(ctx context.Context, log zerolog.Logger) {
	for _, d := range m.Store.Drains() {
		if d.Status != metadata.DrainRunning {
			continue
		}
		if err := m.driveOne(ctx, d); err != nil && ctx.Err() == nil {
			log.Warn().Err(err).Strs("segments", d.Segments).Msg("draining segments failed, it will be tried again")
		}
	}
}

// driveOne ends a job, or creates tasks that move some more of its objects.
func (m *Master) driveOne(ctx context.Context, d metadata.Drain) error {
	p := m.drains.of(d.ID)
	active := make(map[unit]bool)
	for _, t := range m.Store.OpenMoves(&d) {
		active[unit{t.Tenant, t.Key, t.Source}] = true
	}
	for id, u := range p.moving {
		if active[u] {
			continue
		}
		if t, ok := m.Store.FindTask(id); !ok || t.Status == metadata.TaskFailed {
			p.failures[u]++
		}
		delete(p.moving, id)
	}
	free := int(d.Concurrency) - len(active)
	left, hopeless, blocked := 0, 0, 0
	var items []metadata.DrainItem
	for shard := range metadata.ShardCount {
		if err := ctx.Err(); err != nil {
			return err
		}
		items = m.Store.DrainItems(items[:0], shard, &d, m.Now())
		for _, it := range items {
			u := unit{it.Tenant, it.Key, it.Source}
			left++
			target, movable := "", it.Movable
			switch {
			case active[u]:
				continue
			case p.failures[u] >= drainRetries:
				hopeless++
				continue
			case movable && free > 0:
				target = m.drainTarget(&d, it.On)
				movable = target != ""
			}
			switch {
			case !movable:
				blocked++
			case free > 0:
				free--
				if err := m.moveAway(ctx, it, target, p); err != nil {
					return err
				}
			}
		}
	}
	m.drains.mu.Lock()
	p.blocked = blocked
	m.drains.mu.Unlock()
	if left > 0 {
		p.empty = 0
	} else {
		p.empty++
	}
	switch {
	case len(active) > 0:
	case p.empty > 1: // a put that took its memory before may have come since
		return m.withTasks(ctx, func(ctx context.Context) error {
			return m.endDrain(ctx, d, metadata.DrainSucceeded, "Drain job finished successfully")
		})
	case left > 0 && hopeless == left:
		return m.withTasks(ctx, func(ctx context.Context) error {
			return m.endDrain(ctx, d, metadata.DrainFailed, "Drain job failed: unrecoverable units remain")
		})
	}
	return nil
}

// moveAway creates the task that moves an object. What refuses it for now is tried
// again, anything else counts as a failure.
func (m *Master) moveAway(ctx context.Context, it metadata.DrainItem, target string, p *drainProgress) error {
	u := unit{it.Tenant, it.Key, it.Source}
	id, err := m.createMove(ctx, it.Tenant, it.Key, it.Source, target, it.Size)
	switch errs.KindOf(err) {
	case errs.OK:
		p.moving[id] = u
	case errs.Unavailable, errs.ObjectHasTask, errs.ObjectNotFound, errs.TaskLimit:
	case errs.NotLeader, errs.Unresolved:
		return err
	default:
		p.failures[u]++
	}
	return nil
}

// drainTarget returns the segment that an object is to be moved to: the emptiest of
// those that take objects and do not have it. It returns "" if there is none.
func (m *Master) drainTarget(d *metadata.Drain, on []string) string {
	best, least := "", 2.0
	for _, s := range m.Store.Segments() {
		if s.Closed || s.Capacity == 0 || slices.Contains(on, s.Name) || len(d.Targets) > 0 && !slices.Contains(d.Targets, s.Name) {
			continue
		}
		if used := float64(s.Busy) / float64(s.Capacity); used < least {
			best, least = s.Name, used
		}
	}
	return best
}
