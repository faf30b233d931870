package deleteevents

import (
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
)

// A Request asks for the removal of one object.
type Request struct {
	Tenant string
	Key    string
	Force  bool   // override a lease, and nothing else
	ID     uint64 // of the request, 0 for none
}

// Prepare decides the removal of one object on the primary. It returns nothing
// at all if the same request was applied before. While another change of the key
// waits for its commit, it returns a channel that is closed with the outcome:
// the caller waits and asks again.
//
// Errors, in the order of the C++ master's checks: ObjectNotFound,
// ObjectHasLease unless forced, ReplicaNotReady while a replica is in progress;
// before them Unavailable while too many numbered removals are remembered.
func Prepare(store *metadata.Store, r Request, now metadata.Time) (*Event, <-chan struct{}, error) {
	e, wait := store.LockSettled(r.Tenant, r.Key)
	defer e.Unlock()
	applied, full := store.Applied(r.ID)
	switch {
	case applied || full != nil:
		return nil, nil, full
	case wait != nil:
		return nil, wait, nil
	case !e.Exists():
		return nil, nil, errs.ObjectNotFound
	}
	if err := e.Removable(r.Force, now); err != nil {
		return nil, nil, err
	}
	removal := e.BeginRemoval(now)
	removal.Request = r.ID
	return Of(Remove, removal), nil, nil
}

// Of returns the event of one removal that is prepared.
func Of(t Type, r *metadata.Removal) *Event {
	return &Event{Type: t, Removals: []*metadata.Removal{r}}
}
