package service

import (
	"context"

	"github.com/understudy-store/understudy/deleteevents"
)

// Distinct is distinct.
func Distinct(names []string) []string { return distinct(names) }

// RemoveMatching is RemoveByRegex with a function for the pattern.
func (m *Master) RemoveMatching(ctx context.Context, match func(key string) bool) (int, error) {
	return m.removeMatching(ctx, deleteevents.RemoveByRegex, "p", match, Removal{Tenant: "default"})
}
