package rpc

import "github.com/understudy-store/understudy/internal/security/share"

// Budgets returns what counts requests that are not finished, and answers that are not sent.
func (s *Server) Budgets() (arriving, unread *share.Budget) { return s.arriving, s.unread }
