package metadata_test

import (
	"slices"

	"github.com/understudy-store/understudy/metadata"
)

// A user may touch bytes until a point of real time: a reader under a lease, or
// the writer of a put that was not finished.
type user struct {
	id     metadata.ObjectID
	ranges []addresses
	until  metadata.Time
	writer bool
}

type addresses struct{ from, to uint64 }

func rangesOf(replicas []metadata.Descriptor, round uint64) (list []addresses) {
	for _, r := range replicas {
		list = append(list, addresses{r.Address, r.Address + max(r.Size, round)})
	}
	return list
}

// use checks that nobody else may touch the bytes that a user was just given,
// and remembers the user.
func (w *world) use(u user) {
	now := w.real()
	w.users = slices.DeleteFunc(w.users, func(o user) bool { return o.until <= now })
	for _, o := range w.users {
		if o.id == u.id {
			continue
		}
		for _, a := range u.ranges {
			for _, b := range o.ranges {
				if a.from < b.to && b.from < a.to {
					w.t.Fatalf("A: at %d object %v got bytes [%d,%d), want them kept for a user of object %v (writer: %v) until %d",
						now, u.id, a.from, a.to, o.id, o.writer, o.until)
				}
			}
		}
	}
	w.users = append(w.users, u)
}
