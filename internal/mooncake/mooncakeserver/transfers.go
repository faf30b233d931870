package mooncakeserver

import (
	"slices"
	"strings"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

func (c call) transferOf(a *args, targets ...string) metadata.Transfer {
	return metadata.Transfer{Tenant: c.tenant, Key: a.Key, Client: a.Client, Source: a.SegmentName, Targets: targets}
}

func copyStart(c call, a *args) (plan mooncake.CopyPlan, err error) {
	p, err := c.master.CopyStart(c, c.transferOf(a, a.Targets...))
	plan.Source = mooncake.Located{ID: p.ID, Descriptor: p.Source}
	for _, d := range p.Targets {
		plan.Targets = append(plan.Targets, mooncake.Located{ID: p.ID, Descriptor: d})
	}
	return plan, err
}

func moveStart(c call, a *args) (plan mooncake.MovePlan, err error) {
	p, err := c.master.MoveStart(c, c.transferOf(a, a.Target))
	plan.Source = mooncake.Located{ID: p.ID, Descriptor: p.Source}
	if len(p.Targets) > 0 {
		plan.Target = &mooncake.Located{ID: p.ID, Descriptor: p.Targets[0]}
	}
	return plan, err
}

func copyEnd(c call, a *args) error    { return c.master.CopyEnd(c, c.transferOf(a)) }
func copyRevoke(c call, a *args) error { return c.master.CopyRevoke(c, c.transferOf(a)) }

// Dynamic copies are planned as tasks of CreateCopyTask, whose clients call CopyStart
// and CopyEnd, so there is never a lease that these calls could name. They answer as
// the C++ master does with dynamic replication off: a call that names none is a plain
// copy.

func dynamicCopyStart(c call, a *args) (mooncake.CopyPlan, error) {
	if a.DynamicLease != [16]byte{} {
		return mooncake.CopyPlan{}, errs.New(errs.Unavailable, "DynamicReplicaCopyStart", "no dynamic copy is planned")
	}
	return copyStart(c, a)
}

func planned(end func(call, *args) error) func(call, *args) error {
	return func(c call, a *args) error {
		if a.DynamicLease != [16]byte{} || a.DynamicEpoch != 0 {
			return errs.New(errs.InvalidVersion, "DynamicReplicaCopyEnd", "no dynamic copy is planned")
		}
		return end(c, a)
	}
}

func createCopyTask(c call, a *args) (mooncake.TaskID, error) {
	targets := slices.Clone(a.Targets)
	for i := range targets { // the task outlives the request
		targets[i] = strings.Clone(targets[i])
	}
	return c.master.CreateCopyTask(c.counted(), c.tenant, strings.Clone(a.Key), targets)
}

func createMoveTask(c call, a *args) (mooncake.TaskID, error) {
	return c.master.CreateMoveTask(c.counted(), c.tenant, strings.Clone(a.Key), strings.Clone(a.SegmentName), strings.Clone(a.Target))
}

func taskKind(t service.TaskInfo) int32 {
	if t.Move {
		return mooncake.TaskMove
	}
	return mooncake.TaskCopy
}

// ago returns the wall time, which clients show to people, of some time ago.
func ago(d time.Duration) int64 { return clock.Wall().Add(-d).UnixMilli() }

func queryTask(c call, a *args) (mooncake.TaskState, error) {
	t, err := c.master.QueryTask(c, a.TaskID)
	return mooncake.TaskState{
		ID: t.ID, Kind: taskKind(t), Status: int32(t.Status), CreatedAt: ago(t.SinceCreated), UpdatedAt: ago(t.SinceUpdated),
		Client: t.Client, Message: t.Message,
	}, err
}

func fetchTasks(c call, a *args) ([]mooncake.Task, error) {
	tasks, err := c.master.FetchTasks(c.counted(), a.Client, a.Most)
	var list []mooncake.Task
	for _, t := range tasks {
		list = append(list, mooncake.Task{
			ID: t.ID, Kind: taskKind(t), Payload: service.TaskPayload(t.Task), CreatedAt: ago(t.SinceCreated), MaxRetries: service.TaskRetries,
		})
	}
	return list, err
}

func markTaskToComplete(c call, a *args) error {
	status := metadata.TaskStatus(0) // no end
	if end := a.TaskEnd.Status; end == int32(metadata.TaskFailed) || end == int32(metadata.TaskSucceeded) {
		status = metadata.TaskStatus(end)
	}
	return c.master.EndTask(c.counted(), a.Client, a.TaskEnd.ID, status, a.TaskEnd.Message)
}
