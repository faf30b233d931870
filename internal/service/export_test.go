package service

import (
	"context"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/segment"
)

// Distinct is distinct.
func Distinct(names []string) []string { return distinct(names) }

// RemoveMatching is RemoveByRegex with a function for the pattern.
func (m *Master) RemoveMatching(ctx context.Context, match func(key string) bool) (int, error) {
	return m.removeSelected(ctx, deleteevents.Selection{Type: deleteevents.RemoveByRegex, Tenant: "default", Pattern: "p", Match: match})
}

// ExpireClient is what becomes of a client that stays silent.
func (m *Master) ExpireClient(ctx context.Context, client segment.ClientID) (int, error) {
	return m.expire(ctx, client, func() bool { return false })
}
