package sim

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-store/understudy/metadata"
)

// A verdict is what a judge must find, a promise or nothing.
type verdict struct {
	name, want string
	play       func(j *judge)
}

// at is a call that was sent and answered at some seconds, in a term.
func at(sent, came int, term metadata.Term) call {
	return call{client: "c", sent: time.Duration(sent) * time.Second, came: time.Duration(came) * time.Second, term: term}
}

// put is a whole put of 10 bytes, from a second on.
func (j *judge) put(key string, id metadata.ObjectID, begun int, from uint64) {
	j.reserved(at(begun, begun+1, 1), key, id, bytes{from, from + 10})
	j.ending(key, id, time.Duration(begun+1)*time.Second)
	j.ended(at(begun+1, begun+2, 1), key, id)
}

// A judge that finds nothing proves nothing: each promise, broken on purpose.
func TestJudge(t *testing.T) {
	for _, tc := range slices.Concat(verdicts(), transferVerdicts()) {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJudge(newTranscript())
				tc.play(j)
				found := strings.Join(j.broken(), "; ")
				if tc.want == "" && found != "" || tc.want != "" && !strings.HasPrefix(found, "promise "+tc.want) {
					t.Errorf("got findings %q, want one of promise %q", found, tc.want)
				}
			})
		})
	}
}

func verdicts() []verdict {
	return []verdict{
		{"nothing is wrong", "", func(j *judge) {
			j.put("k", 1, 1, 0)
			j.got(at(4, 5, 1), "k", 1, bytes{0, 10})
			j.removes("k", 6*time.Second)()
			j.removed(at(6, 7, 1), "k", 0)
			j.notFound(at(8, 9, 1), "k", true)
			j.put("l", 2, 10, 0)
		}},
		{"an object is lost", "D", func(j *judge) {
			j.put("k", 1, 1, 0)
			j.notFound(at(4, 5, 2), "k", true)
		}},
		{"a late read misses what is not there yet", "", func(j *judge) {
			j.notFound(at(1, 5, 1), "k", true)
			j.put("k", 1, 1, 0)
			j.notFound(at(2, 4, 1), "k", true)
		}},
		{"a reservation is lost", "D", func(j *judge) {
			j.reserved(at(1, 2, 1), "k", 1, bytes{0, 10})
			j.notEnded(at(3, 4, 2), "k", 1, errors.New("gone"))
		}},
		{"an object comes back", "X", func(j *judge) {
			j.put("k", 1, 1, 0)
			j.removes("k", 4*time.Second)()
			j.removed(at(4, 5, 1), "k", 0)
			j.got(at(6, 7, 2), "k", 1, bytes{0, 10})
		}},
		{"a removal that was not found comes back", "X", func(j *judge) {
			j.put("k", 1, 1, 0)
			j.removes("k", 4*time.Second)()
			j.notFound(at(6, 7, 2), "k", true)
			j.got(at(8, 9, 2), "k", 1, bytes{0, 10})
		}},
		{"a removal hits a later object", "D", func(j *judge) {
			j.put("k", 1, 1, 0)
			j.removes("k", 4*time.Second)()
			j.removed(at(4, 5, 1), "k", 0)
			j.put("k", 2, 6, 0)
			j.notFound(at(9, 10, 1), "k", true)
		}},
		{"two objects share bytes", "A", func(j *judge) {
			j.put("k", 1, 1, 0)
			j.put("l", 2, 3, 5)
		}},
		{"bytes are reused under a reader", "L", func(j *judge) {
			j.put("k", 1, 1, 0)
			j.got(at(4, 4, 1), "k", 1, bytes{0, 10})
			j.removes("k", 4*time.Second)()
			j.removed(at(4, 4, 1), "k", 0)
			j.reserved(at(4, 4, 1), "l", 2, bytes{5, 15})
		}},
		{"a reader sees what is not committed", "V", func(j *judge) {
			j.reserved(at(1, 2, 1), "k", 1, bytes{0, 10})
			j.got(at(3, 4, 1), "k", 1, bytes{0, 10})
		}},
		{"an old primary answers", "F", func(j *judge) {
			j.notFound(at(1, 2, 2), "k", true)
			j.notFound(at(3, 4, 1), "k", true)
		}},
		{"an old primary answers a read that it took before", "F", func(j *judge) {
			j.notFound(at(2, 3, 2), "k", true)
			j.notFound(at(1, 4, 1), "k", true)
		}},
		{"states differ", "S", func(j *judge) {
			j.state("a", 7, 1)
			j.state("b", 7, 2)
		}},
	}
}

func transferVerdicts() []verdict {
	return []verdict{
		{"a copy and a move", "", func(j *judge) {
			j.put("k", 1, 1, 0)
			copied := j.transferred(at(4, 5, 1), "k", 1, nil, []bytes{{20, 30}})
			j.got(at(5, 6, 1), "k", 1, bytes{0, 10})
			j.transferEnding(copied, 7*time.Second)
			j.transferEnded(at(7, 8, 1), copied)
			j.got(at(9, 10, 1), "k", 1, bytes{0, 10}, bytes{20, 30})
			moved := j.transferred(at(11, 12, 1), "k", 1, &bytes{0, 10}, nil)
			j.transferEnding(moved, 13*time.Second)
			j.transferEnded(at(13, 14, 1), moved)
			j.got(at(15, 16, 1), "k", 1, bytes{20, 30})
			j.put("l", 2, 17, 0)
		}},
		{"a copy is readable before it has ended", "V", func(j *judge) {
			j.put("k", 1, 1, 0)
			j.transferred(at(4, 5, 1), "k", 1, nil, []bytes{{20, 30}})
			j.got(at(6, 7, 1), "k", 1, bytes{0, 10}, bytes{20, 30})
		}},
		{"a copy is lost", "D", func(j *judge) {
			j.put("k", 1, 1, 0)
			copied := j.transferred(at(4, 5, 1), "k", 1, nil, []bytes{{20, 30}})
			j.transferEnding(copied, 6*time.Second)
			j.transferEnded(at(6, 7, 1), copied)
			j.got(at(8, 9, 2), "k", 1, bytes{0, 10})
		}},
		{"the end of a copy finds none", "D", func(j *judge) {
			j.put("k", 1, 1, 0)
			copied := j.transferred(at(4, 5, 1), "k", 1, nil, []bytes{{20, 30}})
			j.transferEnding(copied, 6*time.Second)
			j.transferNotEnded(at(6, 7, 2), copied, errors.New("none"))
		}},
		{"the repeated end of a copy finds none", "", func(j *judge) {
			j.put("k", 1, 1, 0)
			copied := j.transferred(at(4, 5, 1), "k", 1, nil, []bytes{{20, 30}})
			j.transferEnding(copied, 6*time.Second)
			j.transferEnding(copied, 7*time.Second)
			j.transferNotEnded(at(7, 8, 2), copied, errors.New("none"))
		}},
		{"a put gets the bytes of a copy", "A", func(j *judge) {
			j.put("k", 1, 1, 0)
			j.transferred(at(4, 5, 1), "k", 1, nil, []bytes{{20, 30}})
			j.put("l", 2, 6, 25)
		}},
		{"a copy gets the bytes of a put", "A", func(j *judge) {
			j.put("k", 1, 1, 0)
			j.put("l", 2, 4, 20)
			j.transferred(at(7, 8, 1), "k", 1, nil, []bytes{{25, 35}})
		}},
		{"an object is where nobody put it", "A", func(j *judge) {
			j.put("k", 1, 1, 0)
			j.got(at(4, 5, 1), "k", 1, bytes{0, 10}, bytes{20, 30})
		}},
		{"a moved object is read where it was", "X", func(j *judge) {
			j.put("k", 1, 1, 0)
			moved := j.transferred(at(4, 5, 1), "k", 1, &bytes{0, 10}, []bytes{{20, 30}})
			j.transferEnding(moved, 6*time.Second)
			j.transferEnded(at(6, 7, 1), moved)
			j.got(at(8, 9, 2), "k", 1, bytes{0, 10}, bytes{20, 30})
		}},
		{"a moved object's old bytes are reused under a reader", "L", func(j *judge) {
			j.put("k", 1, 1, 0)
			moved := j.transferred(at(4, 5, 1), "k", 1, &bytes{0, 10}, []bytes{{20, 30}})
			j.got(at(6, 6, 1), "k", 1, bytes{0, 10})
			j.transferEnding(moved, 6*time.Second)
			j.transferEnded(at(6, 6, 1), moved)
			j.reserved(at(6, 6, 1), "l", 2, bytes{5, 15})
		}},
	}
}
