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
