package sim

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-store/understudy/metadata"
)

// A judge that finds nothing proves nothing: each promise, broken on purpose.
func TestJudge(t *testing.T) {
	at := func(sent, came int, term metadata.Term) call {
		return call{client: "c", sent: time.Duration(sent) * time.Second, came: time.Duration(came) * time.Second, term: term}
	}
	put := func(j *judge, key string, id metadata.ObjectID, begun int, from uint64) {
		j.reserved(at(begun, begun+1, 1), key, id, from, from+10)
		j.ending(key, id, time.Duration(begun+1)*time.Second)
		j.ended(at(begun+1, begun+2, 1), key, id)
	}
	for _, tc := range []struct {
		name, want string
		play       func(j *judge)
	}{
		{"nothing is wrong", "", func(j *judge) {
			put(j, "k", 1, 1, 0)
			j.got(at(4, 5, 1), "k", 1, 0, 10)
			j.removes("k", 6*time.Second)()
			j.removed(at(6, 7, 1), "k", 0)
			j.notFound(at(8, 9, 1), "k", true)
			put(j, "l", 2, 10, 0)
		}},
		{"an object is lost", "D", func(j *judge) {
			put(j, "k", 1, 1, 0)
			j.notFound(at(4, 5, 2), "k", true)
		}},
		{"a late read misses what is not there yet", "", func(j *judge) {
			j.notFound(at(1, 5, 1), "k", true)
			put(j, "k", 1, 1, 0)
			j.notFound(at(2, 4, 1), "k", true)
		}},
		{"a reservation is lost", "D", func(j *judge) {
			j.reserved(at(1, 2, 1), "k", 1, 0, 10)
			j.notEnded(at(3, 4, 2), "k", 1, errors.New("gone"))
		}},
		{"an object comes back", "X", func(j *judge) {
			put(j, "k", 1, 1, 0)
			j.removes("k", 4*time.Second)()
			j.removed(at(4, 5, 1), "k", 0)
			j.got(at(6, 7, 2), "k", 1, 0, 10)
		}},
		{"a removal that was not found comes back", "X", func(j *judge) {
			put(j, "k", 1, 1, 0)
			j.removes("k", 4*time.Second)()
			j.notFound(at(6, 7, 2), "k", true)
			j.got(at(8, 9, 2), "k", 1, 0, 10)
		}},
		{"a removal hits a later object", "D", func(j *judge) {
			put(j, "k", 1, 1, 0)
			j.removes("k", 4*time.Second)()
			j.removed(at(4, 5, 1), "k", 0)
			put(j, "k", 2, 6, 0)
			j.notFound(at(9, 10, 1), "k", true)
		}},
		{"two objects share bytes", "A", func(j *judge) {
			put(j, "k", 1, 1, 0)
			put(j, "l", 2, 3, 5)
		}},
		{"bytes are reused under a reader", "L", func(j *judge) {
			put(j, "k", 1, 1, 0)
			j.got(at(4, 4, 1), "k", 1, 0, 10)
			j.removes("k", 4*time.Second)()
			j.removed(at(4, 4, 1), "k", 0)
			j.reserved(at(4, 4, 1), "l", 2, 5, 15)
		}},
		{"a reader sees what is not committed", "V", func(j *judge) {
			j.reserved(at(1, 2, 1), "k", 1, 0, 10)
			j.got(at(3, 4, 1), "k", 1, 0, 10)
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
	} {
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
