package service

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/metadata"
)

// drainRetries is how often the move of an object may fail (C++ master).
const drainRetries = 3

// Limits of a pass of DriveTasks.
const (
	taskTick   = time.Second
	drainMoves = 256     // tasks that are created for one job
	drainLooks = 1 << 20 // objects that are looked at, about
)

// drains is what a primary remembers of drain jobs beside the state. A later primary
// counts failures anew.
type drains struct {
	mu    sync.Mutex // guards the map, and the counts of blocked objects
	jobs  map[metadata.TaskID]*drainProgress
	looks int // drainLooks
}

// drainProgress is used by the loop only, except for the guarded fields.
type drainProgress struct {
	moving   map[metadata.TaskID]unit // tasks that this primary has created
	failures map[unit]int
	blocked  int // objects that could not be moved in the last round; guarded by drains.mu
	empty    int // rounds, one after the other, in which no object was there
	round    drainRound
}

// A drainRound is a look at all objects of a job. It may take several passes.
type drainRound struct {
	shard                   int // that is next
	left, hopeless, blocked int // objects
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

// blocked returns how many objects of a job could not be moved in its last round.
func (d *drains) blocked(id metadata.TaskID) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.jobs[id]; p != nil {
		return p.blocked
	}
	return 0
}

// Decimal writes an id as upstream's HTTP API does: two numbers.
func Decimal[T ~[16]byte](id T) string {
	return fmt.Sprintf("%d-%d", binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:]))
}

// A DrainInfo is the present state of a drain job.
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
			return commitOne(ctx, m, 32<<10, func() (*metadata.SaveDrain, error) { return m.Store.PrepareDrain(d) })
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
		now := m.Now()
		return DrainInfo{d, len(m.Store.OpenMoves(&d)), m.drains.blocked(id), now - d.Created, now - d.Updated}, m.Fence(ctx)
	}
	return DrainInfo{}, m.fenced(ctx, errs.JobNotFound)
}

// CancelDrainJob ends a drain job; its segments take objects again. Moves that no host has
// fetched are given up. Errors: JobNotFound, Unavailable if the job has ended, or while hosts
// move objects.
func (m *Master) CancelDrainJob(ctx context.Context, id metadata.TaskID) error {
	const op = "CancelDrainJob"
	return m.withTasks(ctx, func(ctx context.Context) error {
		info, err := m.QueryDrainJob(ctx, id)
		if err != nil {
			return err
		}
		if info.Status != metadata.DrainRunning {
			return errs.New(errs.Unavailable, op, "the job has ended: it is %v", info.Status)
		}
		moves := m.Store.OpenMoves(&info.Drain)
		fetched := slices.DeleteFunc(slices.Clone(moves), func(t metadata.Task) bool { return t.Status == metadata.TaskPending })
		if len(fetched) > 0 {
			return errs.New(errs.Unavailable, op, "%d objects are being moved; try again when that has ended, or has failed, %v after a host has fetched it", len(fetched), metadata.TaskTimeout)
		}
		for some := range slices.Chunk(moves, drainMoves) {
			e := &metadata.SetTasks{Status: metadata.TaskFailed, Message: "drain job canceled"}
			for _, t := range some {
				e.IDs = append(e.IDs, t.ID)
			}
			if err := commitOne(ctx, m, 32<<10, func() (*metadata.SetTasks, error) { return e, nil }); err != nil {
				return err
			}
		}
		return m.endDrain(ctx, info.Drain, metadata.DrainCanceled, "Drain job canceled")
	})
}

// endDrain ends a job, if it still runs. It must be called within withTasks.
func (m *Master) endDrain(ctx context.Context, d metadata.Drain, status metadata.DrainStatus, message string) error {
	err := commitOne(ctx, m, 32<<10, func() (*metadata.SaveDrain, error) {
		if !slices.ContainsFunc(m.Store.Drains(), func(now metadata.Drain) bool { return now.ID == d.ID && now.Status == metadata.DrainRunning }) {
			return nil, nil
		}
		d.Status, d.Message = status, message
		return &metadata.SaveDrain{Drain: d}, nil
	})
	if err == nil {
		m.drains.mu.Lock()
		delete(m.drains.jobs, d.ID)
		m.drains.mu.Unlock()
	}
	return err
}

// DriveTasks fails overdue tasks, advances drain jobs and has objects copied that are
// read often, until the context ends.
func (m *Master) DriveTasks(ctx context.Context, log zerolog.Logger) error {
	return clock.Every(ctx, taskTick, func() error {
		m.endOverdueTasks(ctx, log)
		m.driveDrains(ctx, log)
		m.copyHot(ctx, log)
		return nil
	})
}

// driveDrains makes a pass over the drain jobs that run.
func (m *Master) driveDrains(ctx context.Context, log zerolog.Logger) {
	jobs := slices.DeleteFunc(m.Store.Drains(), func(d metadata.Drain) bool { return d.Status != metadata.DrainRunning })
	if len(jobs) == 0 {
		return
	}
	segments := m.Store.Segments()
	for _, d := range jobs {
		if err := m.driveOne(ctx, d, segments, m.drains.looks/len(jobs)); err != nil && ctx.Err() == nil {
			log.Warn().Err(err).Strs("segments", d.Segments).Msg("draining segments failed, it will be tried again")
		}
	}
}

// driveOne creates tasks that move some more of a job's objects. At the end of a round
// it may end the job.
func (m *Master) driveOne(ctx context.Context, d metadata.Drain, segments []metadata.SegmentStats, looks int) error {
	p := m.drains.of(d.ID)
	active := m.openMoves(&d, p)
	moves, err := m.pickMoves(ctx, &d, p, active, drainTargets(&d, segments), looks)
	if err != nil {
		return err
	}
	if err := m.moveAway(ctx, moves, p); err != nil || p.round.shard < metadata.ShardCount {
		return err
	}
	round := p.round
	p.round = drainRound{}
	m.drains.mu.Lock()
	p.blocked = round.blocked
	m.drains.mu.Unlock()
	if p.empty++; round.left > 0 {
		p.empty = 0
	}
	switch {
	case len(active) > 0:
	case p.empty > 1: // a put that took its memory before may have come since
		return m.withTasks(ctx, func(ctx context.Context) error {
			return m.endDrain(ctx, d, metadata.DrainSucceeded, "Drain job finished successfully")
		})
	case round.left > 0 && round.hopeless == round.left:
		return m.withTasks(ctx, func(ctx context.Context) error {
			return m.endDrain(ctx, d, metadata.DrainFailed, "Drain job failed: unrecoverable units remain")
		})
	}
	return nil
}

// openMoves returns the moves of a job that are under way, and notes those that failed.
func (m *Master) openMoves(d *metadata.Drain, p *drainProgress) map[unit]bool {
	active := make(map[unit]bool)
	for _, t := range m.Store.OpenMoves(d) {
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
	return active
}

// pickMoves goes on with a job's round, past about as many objects as it may look at. It
// returns the moves that are to begin.
func (m *Master) pickMoves(ctx context.Context, d *metadata.Drain, p *drainProgress, active map[unit]bool, targets []*metadata.SegmentStats, looks int) (moves []metadata.Task, err error) {
	free, round := min(int(d.Concurrency)-len(active), drainMoves), &p.round
	var items []metadata.DrainItem
	for looked := 0; round.shard < metadata.ShardCount && looked < looks; round.shard++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var n int
		items, n = m.Store.DrainItems(items[:0], round.shard, d, m.Now())
		looked += n
		round.left += len(items)
		for _, it := range items {
			u := unit{it.Tenant, it.Key, it.Source}
			switch {
			case active[u]:
			case p.failures[u] >= drainRetries:
				round.hopeless++
			case !it.Movable:
				round.blocked++
			case len(moves) < free:
				if move, ok := moveOf(&it, targets); ok {
					moves = append(moves, move)
				} else {
					round.blocked++
				}
			}
		}
	}
	return moves, nil
}

// moveOf returns the move of an object to the emptiest of some segments that it is not on. If
// it is on all of them, the move is to one that has it: nothing is copied, and the source goes.
func moveOf(it *metadata.DrainItem, targets []*metadata.SegmentStats) (metadata.Task, bool) {
	t := metadata.Task{Tenant: it.Tenant, Key: it.Key, Move: true, Source: it.Source}
	if target := emptiest(targets, it.On); target != nil {
		target.Busy += it.Size // soon
		t.Targets, t.Size = []string{target.Name}, it.Size
		return t, true
	}
	for _, s := range targets {
		if s.Name != it.Source && slices.Contains(it.On, s.Name) {
			t.Targets = []string{s.Name}
			return t, true
		}
	}
	return t, false
}

// moveAway creates the tasks that move objects. A move that is only refused for now is
// tried again; any other error counts as a failure.
func (m *Master) moveAway(ctx context.Context, moves []metadata.Task, p *drainProgress) error {
	if len(moves) == 0 {
		return nil
	}
	created, err := m.createTasks(ctx, "CreateMoveTask", moves)
	if err != nil {
		return err
	}
	for i, o := range created {
		u := unit{moves[i].Tenant, moves[i].Key, moves[i].Source}
		switch errs.KindOf(o.err) {
		case errs.OK:
			p.moving[moves[i].ID] = u
		case errs.Unavailable, errs.ObjectHasTask, errs.ObjectNotFound, errs.TaskLimit:
		case errs.NotLeader, errs.Unresolved:
			err = o.err
		default:
			p.failures[u]++
		}
	}
	return err
}

// drainTargets returns the segments that a job may move objects to.
func drainTargets(d *metadata.Drain, segments []metadata.SegmentStats) (targets []*metadata.SegmentStats) {
	for i := range segments {
		s := &segments[i]
		if !s.Closed && s.Capacity > 0 && (len(d.Targets) == 0 || slices.Contains(d.Targets, s.Name)) {
			targets = append(targets, s)
		}
	}
	return targets
}

// emptiest returns the emptiest of some segments that an object is not on; nil if there is
// none.
func emptiest(targets []*metadata.SegmentStats, on []string) (best *metadata.SegmentStats) {
	least := 2.0
	for _, s := range targets {
		if used := float64(s.Busy) / float64(s.Capacity); used < least && !slices.Contains(on, s.Name) {
			best, least = s, used
		}
	}
	return best
}
