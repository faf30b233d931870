package scalebench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/lab/bench/caller"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/promote"
)

// A task is a housekeeping task. It returns how many items it processed.
type task struct {
	name string
	ha   bool // it needs a standby
	run  func(w *world, ctx context.Context, t *Task) (items int64, err error)
}

// tasks returns all tasks, in the order in which they run. Each task relies on the state that
// the earlier ones leave.
func tasks() []task {
	return []task{
		{"idle", false, (*world).idle},
		{"busy", false, (*world).busy},
		{"renewals", false, (*world).renewals},
		{"state-file", true, (*world).stateFile},
		{"snapshot", true, (*world).snapshot},
		{"handover", true, (*world).handover},
		{"kill", true, (*world).kill},
		{"remove-regex", false, (*world).removeRegex},
		{"quarantine", false, (*world).quarantine},
		{"unmount", false, (*world).unmountLarge},
		{"evict", false, (*world).evict},
	}
}

// TaskNames returns the names of the tasks.
func TaskNames() (names []string) {
	for _, t := range tasks() {
		names = append(names, t.name)
	}
	return names
}

// measure runs a task, and measures the primary and its callers while it runs.
func (w *world) measure(ctx context.Context, t task) (m Task, err error) {
	m.Name = t.name
	node := w.primary
	before, err := node.Metrics(ctx)
	if err != nil {
		return m, err
	}
	memory := watchPeak(ctx, node.PID)
	w.probes.reset()
	begun := w.clock()
	m.Items, err = t.run(w, ctx, &m)
	took := w.clock() - begun
	if err == nil {
		err = clock.Sleep(ctx, w.Least-took)
	}
	if err == nil {
		m.Calls, err = w.probes.counts(ctx)
	}
	m.PeakRSS = memory.stop()
	if err != nil {
		return m, err
	}
	m.Seconds = took.Seconds()
	m.PerSecond = float64(m.Items) / m.Seconds
	if node != w.primary {
		m.PeakRSS = 0
		return m, nil
	}
	after, err := node.Metrics(ctx)
	if err == nil {
		m.addCollections(before, after)
	}
	return m, err
}

func (w *world) idle(ctx context.Context, _ *Task) (int64, error) {
	return 0, clock.Sleep(ctx, w.Least)
}

// busy has another process keep a processor busy: the least that callers wait beside any task
// that needs one.
func (w *world) busy(ctx context.Context, _ *Task) (int64, error) {
	ctx, stop := context.WithTimeout(ctx, w.Least)
	defer stop()
	return 0, cluster.KeepBusy(ctx)
}

const (
	// renewalRate is how many leases are renewed a second, for two scans at least.
	renewalRate  = 100_000
	renewalPause = time.Second * fillBatch / renewalRate
	renewalLeast = 2 * time.Second
)

// renewals renews leases at a steady rate, which the scanner journals every second.
func (w *world) renewals(ctx context.Context, _ *Task) (int64, error) {
	const counter = "understudy_renewals_committed_total"
	before, err := w.primary.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	c, err := caller.Dial(ctx, caller.Mooncake, w.primary.RPC)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	keys := make([]string, 0, fillBatch)
	end, from, errDone := w.clock()+max(w.Least, renewalLeast), 0, errors.New("done")
	err = clock.Every(ctx, renewalPause, func() error {
		if w.clock() > end {
			return errDone
		}
		to := min(from+fillBatch, w.stays.objects)
		keys = w.stays.keys(keys, from, to)
		from = to % w.stays.objects
		return c.Exist(keys)
	})
	if !errors.Is(err, errDone) {
		return 0, err
	}
	after, err := w.primary.Metrics(ctx)
	return int64(after[counter] - before[counter]), err
}

// stateFile makes the primary send a state file to this process.
func (w *world) stateFile(ctx context.Context, _ *Task) (int64, error) {
	s, err := w.state(ctx)
	if err != nil {
		return 0, err
	}
	stream, err := w.primary.Admin.Backup(ctx, &pb.BackupRequest{})
	if err != nil {
		return 0, err
	}
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return int64(s.GetObjects()), nil
		} else if err != nil {
			return 0, err
		}
	}
}

// snapshot makes a standby without a state load a snapshot.
func (w *world) snapshot(ctx context.Context, _ *Task) (int64, error) {
	standby := w.Standbys(w.primary)[0]
	standby.Kill()
	if err := w.ForgetState(standby); err != nil {
		return 0, err
	}
	s, err := w.state(ctx)
	if err != nil {
		return 0, err
	}
	if err := w.StartNode(ctx, standby, promote.Standby); err != nil {
		return 0, err
	}
	w.findNodes()
	return int64(s.GetObjects()), standby.UntilPromotable(ctx)
}

func (w *world) handover(ctx context.Context, t *Task) (int64, error) {
	old := w.primary
	if err := old.UntilHandover(ctx); err != nil {
		return 0, err
	}
	s, err := old.Status(ctx)
	if err != nil {
		return 0, err
	}
	if _, err := old.Admin.Handover(ctx, &pb.HandoverRequest{Term: s.GetHeader().GetTerm()}); err != nil {
		return 0, err
	}
	return w.takenOver(ctx, t, s.GetHeader().GetTerm())
}

func (w *world) kill(ctx context.Context, t *Task) (int64, error) {
	if err := w.Settled(ctx); err != nil {
		return 0, err
	}
	s, err := w.primary.Status(ctx)
	if err != nil {
		return 0, err
	}
	w.primary.Kill()
	return w.takenOver(ctx, t, s.GetHeader().GetTerm())
}

// takenOver waits for the primary of a later term.
func (w *world) takenOver(ctx context.Context, t *Task, term uint64) (int64, error) {
	n, _, err := w.Primary(ctx, term)
	if err != nil {
		return 0, err
	}
	w.primary = n
	s, err := w.state(ctx)
	if err != nil {
		return 0, err
	}
	if err := w.probes.answered(ctx); err != nil {
		return 0, err
	}
	return int64(s.GetObjects()), t.addPhases(ctx, n)
}

// removeRegex removes a tenth of the objects by a pattern. Without HA no guard of a term
// keeps their memory in quarantine, so it leases them first.
func (w *world) removeRegex(ctx context.Context, _ *Task) (int64, error) {
	if !w.HA {
		err := w.inBatches(ctx, w.leaves.objects, func(c caller.Caller, _, from, to int, keys []string) error {
			return c.Exist(w.leaves.keys(keys, from, to))
		})
		if err != nil {
			return 0, err
		}
	}
	r, err := pb.NewObjectServiceClient(w.primary.Conn).RemoveByRegex(ctx, &pb.RemoveByRegexRequest{Regex: "^" + w.leaves.prefix, Force: true})
	return int64(r.GetRemoved()), err
}

// quarantine waits until the memory of the removed objects leaves quarantine.
func (w *world) quarantine(ctx context.Context, _ *Task) (int64, error) {
	s, err := w.state(ctx)
	if err != nil {
		return 0, err
	}
	ranges := int64(s.GetQuarantinedBytes() / caller.ObjectBytes)
	return ranges, w.until(ctx, "has nothing in quarantine", func(s *pb.StateStatus) bool { return s.GetQuarantinedBytes() == 0 })
}

// unmountLarge unmounts a segment with a tenth of the objects, and waits until they are
// swept away.
func (w *world) unmountLarge(ctx context.Context, _ *Task) (int64, error) {
	s, err := w.state(ctx)
	if err != nil {
		return 0, err
	}
	if err := w.unmount(ctx, largeSegment); err != nil {
		return 0, err
	}
	before, least := s.GetObjects(), uint64(w.large.objects)*9/10
	err = w.until(ctx, "has swept a segment", func(now *pb.StateStatus) bool { s = now; return now.GetObjects()+least < before })
	return int64(before - s.GetObjects()), err
}

// evict unmounts empty segments, so that the remaining memory is above the watermark, and
// waits until the eviction is done.
func (w *world) evict(ctx context.Context, _ *Task) (int64, error) {
	s, err := w.state(ctx)
	if err != nil {
		return 0, err
	}
	before := s.GetEvicted()
	for _, name := range []string{leaveSegment, spareSegment} {
		if err := w.unmount(ctx, name); err != nil {
			return 0, fmt.Errorf("unmounting %s: %w", name, err)
		}
	}
	last, quiet := before, 0
	err = w.until(ctx, "has evicted what it must", func(now *pb.StateStatus) bool {
		if quiet++; now.GetEvicted() != last {
			last, quiet = now.GetEvicted(), 0
		}
		return last > before && quiet > 20 // polls
	})
	return int64(last - before), err
}
