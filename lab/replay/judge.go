package replay

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/understudy-store/understudy/client"
)

// Violations counts broken promises. All counts must be 0.
type Violations struct {
	LostPuts     int `json:"lost_puts"`     // acknowledged puts that are gone without a reason after a failover
	Resurrected  int `json:"resurrected"`   // objects that were returned after their acknowledged removal
	WrongBytes   int `json:"wrong_bytes"`   // a block under lease holds something else
	BrokenLeases int `json:"broken_leases"` // a block changed while its lease held
}

// Any reports whether a promise was broken.
func (v Violations) Any() bool { return v != Violations{} }

// maxExamples bounds how many violations are described.
const maxExamples = 10

// A judge remembers acknowledged puts and removals, and judges answers by them.
type judge struct {
	mu       sync.Mutex
	broken   Violations
	examples []string
	removed  map[client.ObjectID]time.Duration // removals, when they were acknowledged
	puts     []acknowledged                    // the last ones, a ring
	next     int
	most     int                 // how many puts are remembered
	tried    map[string]struct{} // keys whose removal was tried
}

// An acknowledged is a put that must exist after a failover.
type acknowledged struct {
	key string
	id  client.ObjectID
}

// After a failover the judge looks for the newest puts, which eviction takes last: at most
// maxRemembered, and at most a twentieth of the blocks that there is room for, so that there
// is room for all blocks that were put or read since.
const (
	maxRemembered   = 2000
	rememberedShare = 20
)

// newJudge returns a judge of a store with room for that many blocks.
func newJudge(room int) *judge {
	return &judge{
		removed: make(map[client.ObjectID]time.Duration), tried: make(map[string]struct{}),
		most: min(maxRemembered, room/rememberedShare),
	}
}

func (j *judge) violation(count *int, text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	*count++
	if len(j.examples) < maxExamples {
		j.examples = append(j.examples, text)
	}
}

func (j *judge) put(key string, id client.ObjectID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := acknowledged{key, id}
	switch {
	case j.most == 0:
	case len(j.puts) < j.most:
		j.puts = append(j.puts, p)
	default:
		j.puts[j.next] = p
		j.next = (j.next + 1) % j.most
	}
}

// tryRemove records that a key is about to be removed. Whether that succeeds or not, its put is
// no longer expected.
func (j *judge) tryRemove(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tried[key] = struct{}{}
}

// remove records that the removal of a put was acknowledged at a time.
func (j *judge) remove(id client.ObjectID, at time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.removed[id] = at
}

// removedBefore reports whether the removal of a put was acknowledged before a time.
func (j *judge) removedBefore(id client.ObjectID, when time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	at, ok := j.removed[id]
	return ok && at < when
}

func (j *judge) expected() []acknowledged {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.puts)
}

// lost records that a put is lost, unless a client has begun to remove it.
func (j *judge) lost(p acknowledged, how string) {
	j.mu.Lock()
	_, tried := j.tried[p.key]
	j.mu.Unlock()
	if !tried {
		j.violation(&j.broken.LostPuts, fmt.Sprintf("object %v (key %s) is gone%s", p.id, p.key, how))
	}
}

func (j *judge) verdict() (Violations, []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.broken, append([]string(nil), j.examples...)
}
