package service

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// Distinct is distinct.
func Distinct(names []string) []string { return distinct(names) }

// SucceedDrain ends a drain job, as the loop does that found nothing left to move.
func (m *Master) SucceedDrain(ctx context.Context, d metadata.Drain) error {
	return m.withTasks(ctx, func(ctx context.Context) error { return m.endDrain(ctx, d, metadata.DrainSucceeded, "done") })
}

// FetchBeside fetches a task of a client, and does something before that is written.
func (m *Master) FetchBeside(ctx context.Context, client segment.ClientID, do func()) error {
	return m.withTasks(ctx, func(ctx context.Context) error {
		do()
		return commitOne(ctx, m, 1<<10, func() (*metadata.SetTasks, error) {
			_, e := m.Store.PrepareFetch(client, 1)
			return e, nil
		})
	})
}

// EndOverdueTasks has tasks fail.
func (m *Master) EndOverdueTasks(ctx context.Context) { m.endOverdueTasks(ctx, zerolog.Nop()) }

// RemoveMatching is RemoveByRegex with a function for the pattern.
func (m *Master) RemoveMatching(ctx context.Context, match func(key string) bool) (deleteevents.Result, error) {
	return m.removeSelected(ctx, RemoveRequest{}, deleteevents.Selection{Type: deleteevents.RemoveByRegex, Tenant: "default", Pattern: "p", Match: match})
}

// HoldTasks has nobody create or change tasks until it is released.
func (m *Master) HoldTasks() (release func()) {
	_ = m.tasks.Wait(context.Background(), "", 1)
	return func() { m.tasks.GiveBack("", 1) }
}

// LookAt bounds the objects that a pass over drain jobs looks at.
func (m *Master) LookAt(objects int) { m.drains.looks = objects }

// LookForOwners looks for others at the endpoints of segments, as after their mounts.
func (m *Master) LookForOwners(specs []segment.Spec) { m.displace(Caller{}, specs) }
