package rpc

import "github.com/understudy-store/understudy/internal/security/share"

// Budgets returns what counts calls that are not over, requests that are not finished, and
// answers that are not sent.
func (s *Server) Budgets() (open, arriving, unread *share.Budget) {
	return s.open, s.arriving, s.unread
}
