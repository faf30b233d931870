package service

import (
	"context"

	"github.com/understudy-store/understudy/deleteevents"
)

// Distinct is distinct.
func Distinct(names []string) []string { return distinct(names) }

// RemoveMatching is RemoveByRegex with a function for the pattern.
func (m *Master) RemoveMatching(ctx context.Context, match func(key string) bool) (int, error) {
	return m.removeSelected(ctx, deleteevents.Selection{Type: deleteevents.RemoveByRegex, Tenant: "default", Pattern: "p", Match: match})
}

// HoldTasks has nobody create or change tasks until it is released.
func (m *Master) HoldTasks() (release func()) {
	m.tasks <- struct{}{}
	return func() { <-m.tasks }
}

// LookAt bounds the objects that a pass over drain jobs looks at.
func (m *Master) LookAt(objects int) { m.drains.looks = objects }
