package promote

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// A trail names the oldest record behind a state file, as seen while etcd's history still
// went on from the file. Records are deleted oldest first: as long as this one stands, so do
// all behind it.
type trail struct {
	file  journal.Cursor
	first metadata.Seq
}

// follows notes whether the journal goes on from the newest file to a position: status and a
// metric show it, also while no newer file can be written. It stays as it was while etcd does
// not answer.
func (s *saver) follows(ctx context.Context, at journal.Cursor) bool {
	s.mu.Lock()
	saved, leads := s.at, s.there && s.at.Head.History == at.Head.History
	s.mu.Unlock()
	if leads {
		var err error
		if leads, err = s.leadsOn(ctx, saved, at); err != nil {
			return true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == saved { // else another file was written meanwhile
		s.followed = leads
	}
	return leads
}

// leadsOn reports whether the journal goes on from a file to where it stands: by etcd's history,
// or by the records. It is for follows alone.
func (s *saver) leadsOn(ctx context.Context, saved, at journal.Cursor) (bool, error) {
	reader := s.node.reader()
	why, err := reader.Continues(ctx, saved)
	switch {
	case err != nil, why != nil && !errors.Is(why, rpctypes.ErrCompacted):
		return false, err
	case at.Head.Bytes == saved.Head.Bytes: // beats need no record
		return true, nil
	case why == nil && s.trail.file == saved:
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	first, err := reader.Oldest(ctx, saved.Head.Seq+1, at.Head.Seq)
	if err != nil {
		return false, err
	}
	if why == nil && first <= at.Head.Seq {
		s.trail = trail{saved, first}
	}
	return why == nil || s.trail == trail{saved, first}, nil
}
