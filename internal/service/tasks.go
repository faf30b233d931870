package service

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// TaskRetries is how often a client tries a task again that found no room.
const TaskRetries = 10

// CreateCopyTask has the owner of a segment that an object is on copy it to others.
// Errors: InvalidParams without a target or for one that is not mounted, ObjectNotFound,
// ReplicaNotFound without a readable replica in memory, Unavailable for a target that takes
// no new objects, TaskLimit.
func (m *Master) CreateCopyTask(ctx context.Context, tenant, key string, targets []string) (metadata.TaskID, error) {
	id, err := m.createTask(ctx, "CreateCopyTask", metadata.Task{Tenant: tenant, Key: key, Targets: slices.Clone(targets)})
	return id, m.Counters.done(OpCreateCopyTask, err)
}

// CreateMoveTask has the owner of a segment move an object from there to another
// segment. Errors: as CreateCopyTask; InvalidParams too if the object is not on the
// source.
func (m *Master) CreateMoveTask(ctx context.Context, tenant, key, source, target string) (metadata.TaskID, error) {
	id, err := m.createTask(ctx, "CreateMoveTask", metadata.Task{Tenant: tenant, Key: key, Move: true, Source: source, Targets: []string{target}})
	return id, m.Counters.done(OpCreateMoveTask, err)
}

func (m *Master) createTask(ctx context.Context, op string, t metadata.Task) (metadata.TaskID, error) {
	list := []metadata.Task{t}
	created, err := m.createTasks(ctx, op, list)
	if err == nil {
		err = created[0].err
	}
	return list[0].ID, err
}

// createTasks gives tasks their ids and creates them, many with one commit. It returns
// what became of each. When it fails itself, that is not known.
func (m *Master) createTasks(ctx context.Context, op string, list []metadata.Task) ([]outcome, error) {
	if err := m.Fence(ctx); err != nil {
		return nil, err
	}
	bytes := 0
	for i := range list {
		list[i].ID = metadata.TaskID(uuid.New())
		bytes = max(bytes, taskBytes(&list[i]))
	}
	created := make(chan []outcome, 1) // the caller may be gone by then
	err := m.withTasks(ctx, func(ctx context.Context) error {
		created <- m.commit(ctx, len(list), bytes, func(i int, _ metadata.Time) (metadata.Change, <-chan struct{}, error) {
			t := list[i]
			if err := m.assignTask(op, &t); err != nil {
				return nil, nil, err
			}
			e, err := m.Store.PrepareTask(op, t, list[:i]...)
			return decided(e, nil, err)
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return <-created, nil
}

// taskBytes returns about how long a task is in the journal, at the most.
func taskBytes(t *metadata.Task) int {
	n := 128 + len(t.Tenant) + len(t.Key) + len(t.Source)
	if !t.Move { // its source is chosen later
		n += metadata.MaxNameBytes
	}
	for _, name := range t.Targets {
		n += len(name)
	}
	return min(n, metadata.MaxChangeBytes)
}

// assignTask gives a task to the owner of a segment that its object is on: of its
// source if it is a move, else of any.
func (m *Master) assignTask(op string, t *metadata.Task) error {
	holders, err := m.Store.Holders(t.Tenant, t.Key)
	switch {
	case len(t.Targets) == 0 || len(t.Targets) > metadata.MaxReplicas:
		return errs.New(errs.InvalidParams, op, "there are %d targets; give 1 to %d", len(t.Targets), metadata.MaxReplicas)
	case err != nil:
		return err
	}
	for _, name := range t.Targets {
		switch err := m.Store.TakesObjects(op, name); errs.KindOf(err) {
		case errs.OK:
		case errs.SegmentNotFound:
			return errs.New(errs.InvalidParams, op, "segment %.64q is not mounted", name)
		default:
			return err
		}
	}
	if t.Move {
		holders = slices.DeleteFunc(holders, func(h metadata.Holder) bool { return h.Name != t.Source })
	}
	switch {
	case t.Move && (len(holders) == 0 || t.Source == t.Targets[0]):
		return errs.New(errs.InvalidParams, op, "key %.64q cannot be moved from segment %.64q to %.64q", t.Key, t.Source, t.Targets[0])
	case len(holders) == 0:
		return errs.New(errs.ReplicaNotFound, op, "key %.64q has no readable replica in memory", t.Key)
	}
	source := holders[rand.IntN(len(holders))]
	t.Source, t.Client = source.Name, source.Client
	return nil
}

// A TaskInfo is the present state of a task.
type TaskInfo struct {
	metadata.Task
	SinceCreated, SinceUpdated time.Duration
}

func (m *Master) taskInfo(t metadata.Task) TaskInfo {
	now := m.Now()
	return TaskInfo{t, now.Sub(t.Created), now.Sub(t.Updated)}
}

// QueryTask returns a task. It fails with TaskNotFound.
func (m *Master) QueryTask(ctx context.Context, id metadata.TaskID) (TaskInfo, error) {
	if err := m.Fence(ctx); err != nil {
		return TaskInfo{}, err
	}
	t, ok := m.Store.FindTask(id)
	var err error
	if !ok {
		err = errs.TaskNotFound
	}
	return m.taskInfo(t), m.Counters.done(OpQueryTask, m.fenced(ctx, err))
}

// FetchTasks gives a client the oldest of its tasks that nobody has fetched, at most
// so many. They are at work from then on.
func (m *Master) FetchTasks(ctx context.Context, client segment.ClientID, most uint64) (list []TaskInfo, err error) {
	if err := m.Fence(ctx); err != nil {
		return nil, err
	}
	if _, e := m.Store.PrepareFetch(client, 1); e == nil || most == 0 { // nearly always
		return nil, m.Counters.done(OpFetchTasks, m.Fence(ctx))
	}
	fetched := make(chan []metadata.Task, 1) // the caller may be gone by then
	err = m.withTasks(ctx, func(ctx context.Context) error {
		return commitOne(ctx, m, 32<<10, func() (*metadata.SetTasks, error) {
			list, e := m.Store.PrepareFetch(client, most)
			if e != nil {
				fetched <- list
			}
			return e, nil
		})
	})
	if err == nil {
		select {
		case tasks := <-fetched:
			for _, t := range tasks {
				list = append(list, m.taskInfo(t))
			}
		default: // another call of the client has got them
		}
	}
	return list, m.Counters.done(OpFetchTasks, err)
}

// EndTask notes how a task of a client ended. For one that has ended already there is
// nothing to do. Errors: InvalidParams for a status that is no end, TaskNotFound,
// IllegalClient for another client's task.
func (m *Master) EndTask(ctx context.Context, client segment.ClientID, id metadata.TaskID, status metadata.TaskStatus, message string) error {
	if err := m.Fence(ctx); err != nil {
		return err
	}
	err := m.withTasks(ctx, func(ctx context.Context) error {
		return commitOne(ctx, m, 2<<10, func() (*metadata.SetTasks, error) {
			t, ok := m.Store.FindTask(id)
			switch {
			case !status.Ended() || status > metadata.TaskSucceeded:
				return nil, errs.New(errs.InvalidParams, "MarkTaskToComplete", "the status %d is no end", status)
			case !ok:
				return nil, errs.TaskNotFound
			case t.Client != client:
				return nil, errs.IllegalClient
			case t.Status.Ended():
				return nil, nil
			}
			return &metadata.SetTasks{IDs: []metadata.TaskID{id}, Status: status, Message: cut(message)}, nil
		})
	})
	return m.Counters.done(OpUpdateTask, err)
}

// cut shortens a message to what the state keeps.
func cut(message string) string {
	const most = 1 << 10
	return string(bytes.ToValidUTF8([]byte(message[:min(len(message), most-3)]), []byte("?")))
}

// endOverdueTasks has tasks fail that have waited, or have been at work, for too long.
func (m *Master) endOverdueTasks(ctx context.Context, log zerolog.Logger) {
	if len(m.Store.OverdueTasks(m.Now())) == 0 { // nearly always
		return
	}
	err := m.withTasks(ctx, func(ctx context.Context) error {
		for _, e := range m.Store.OverdueTasks(m.Now()) { // again: one may have been fetched
			if err := commitOne(ctx, m, 32<<10, func() (*metadata.SetTasks, error) { return e, nil }); err != nil {
				return err
			}
			log.Info().Int("tasks", len(e.IDs)).Str("reason", e.Message).Msg("tasks to copy or move objects failed")
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		log.Warn().Err(err).Msg("ending overdue tasks failed, it will be tried again")
	}
}

// withTasks runs f while no other call changes tasks, as withSegments does.
func (m *Master) withTasks(ctx context.Context, f func(context.Context) error) error {
	return alone(ctx, "tasks", m.tasks, f)
}

// TaskPayload is what a client is to do, in upstream's JSON.
func TaskPayload(t metadata.Task) string {
	var payload any = struct {
		Tenant  string   `json:"tenant_id"`
		Key     string   `json:"key"`
		Source  string   `json:"source"`
		Targets []string `json:"targets"`
		// Always 0: this master plans dynamic copies as tasks without a lease.
		LeaseHigh uint64 `json:"dynamic_replication_lease_id_high"`
		LeaseLow  uint64 `json:"dynamic_replication_lease_id_low"`
		Epoch     uint64 `json:"dynamic_replication_version_epoch"`
	}{Tenant: t.Tenant, Key: t.Key, Source: t.Source, Targets: t.Targets}
	if t.Move {
		payload = struct {
			Tenant string `json:"tenant_id"`
			Key    string `json:"key"`
			Source string `json:"source"`
			Target string `json:"target"`
		}{t.Tenant, t.Key, t.Source, t.Targets[0]}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(payload) // into memory, of strings and numbers
	return string(bytes.TrimSpace(b.Bytes()))
}
