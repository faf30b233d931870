package judge

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"
)

// A story is a history, and what the judge must find in it.
type story struct {
	name    string
	rules   Rules
	history string
	want    map[string]int // violations; none if it is sound
	text    string         // part of an example
}

var keepsAll = Rules{NoEviction: true}

// unnumbered are the rules of clients without request ids.
var unnumbered = Rules{NoEviction: true, Unnumbered: true}

var sound = []story{
	{"put, read, remove", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-20 c0 put_end   k/ ok id=1
		22-23 c1 get       k/ ok id=1
		22-23 c2 exist     k/ true
		24-25 c1 remove    k/ leased
		30-40 c1 remove_force k/ ok
		42-43 c2 get       k/ missing
		44-45 c2 exist     k/ false
		50-60 c0 put_start k/ ok id=2`, nil, ""},
	{"a client without request ids replaces a put of which it never heard", unnumbered, `
		0-10  c0 put_start k/ lost
		20-21 c1 get       k/ not-ready
		30-40 c0 put_start k/ ok id=2
		41-50 c0 put_end   k/ ok id=2
		51-52 c1 get       k/ ok id=2`, nil, ""},
	{"a repeated PutEnd without an id meets another client's put", unnumbered, `
		0-10  c0 put_start k/ ok id=1
		12-40 c0 put_end   k/ illegal id=1 attempts=2
		15-16 c1 get       k/ ok id=1
		20-30 c1 remove    k/ ok
		31-35 c2 put_start k/ ok id=2`, nil, ""},
	{"an upsert takes the place of an object, and of a put in progress", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-20 c0 put_end   k/ ok id=1
		21-30 c1 put_start k/ ok id=2 upsert
		31-32 c2 get       k/ not-ready
		33-40 c2 put_start k/ ok id=3 upsert
		41-50 c1 put_end   k/ missing id=2
		51-60 c2 put_end   k/ ok id=3
		61-62 c0 get       k/ ok id=3
		63-64 c0 put_start k/ no-room upsert
		65-66 c0 get       k/ ok id=3`, nil, ""},
	{"a lost upsert that did its work, and one that did not", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-20 c0 put_end   k/ ok id=1
		21-30 c1 put_start k/ lost upsert
		21-30 c2 put_start k/ lost upsert
		31-32 c2 get       k/ ok id=1
		33-34 c2 get       k/ not-ready`, nil, ""},
	{"an object goes when its lease has ended, or its term", Rules{}, `
		0-10    c0 put_start o/ ok id=9 term=1
		12-20   c0 put_end   o/ ok id=9 term=1
		0-10    c0 put_start k/ ok id=1 term=1
		12-20   c0 put_end   k/ ok id=1 term=1
		100-110 c1 get       k/ ok id=1 term=1 leased=1100
		900-901 p0 get       o/ ok id=9 term=1
		950-951 c2 get       k/ missing`, nil, ""},
	{"a forced removal overrides a lease, and so does an upsert", Rules{}, `
		0-10    c0 put_start o/ ok id=9 term=1
		12-20   c0 put_end   o/ ok id=9 term=1
		0-10    c0 put_start k/ ok id=1 term=1
		12-20   c0 put_end   k/ ok id=1 term=1
		100-110 c1 get       k/ ok id=1 term=1 leased=1100
		200-210 c2 put_start k/ ok id=1.2 term=1 upsert
		212-220 c2 put_end   k/ ok id=1.2 term=1
		230-231 c1 get       k/ ok id=1.2 term=1 leased=1230
		240-250 c2 remove_force k/ ok
		260-261 c2 get       k/ missing
		999-1000 p0 get      o/ ok id=9 term=1`, nil, ""},
	{"a lost removal does its work when the lease has ended", Rules{}, `
		0-10    c0 put_start o/ ok id=9 term=1
		12-20   c0 put_end   o/ ok id=9 term=1
		0-10    c0 put_start k/ ok id=1 term=1
		12-20   c0 put_end   k/ ok id=1 term=1
		100-110 c1 get       k/ ok id=1 term=1 leased=1100
		200-210 c2 remove    k/ lost
		900-901 c2 get       k/ ok id=1 term=1
		1200-1201 c2 get     k/ missing
		1300-1301 p0 get     o/ ok id=9 term=1`, nil, ""},
	{"a client without request ids replaces its own lost put, beside another's that never came", unnumbered, `
		0-10  c1 put_start k/ lost
		20-30 c2 put_start k/ lost
		40-41 c3 get       k/ not-ready
		50-60 c2 put_start k/ ok id=2`, nil, ""},
	{"what is copied is readable, and is not removed", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-20 c0 put_end   k/ ok id=1
		21-22 c1 remove    k/ not-ready
		31-32 c1 get       k/ ok id=1`, nil, ""},
	{"a put under way is not readable, and not for others", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-13 c1 get       k/ not-ready
		12-13 c1 exist     k/ false
		14-15 c1 put_start k/ exists
		16-17 c1 remove    k/ not-ready
		20-30 c0 put_revoke k/ ok id=1
		31-32 c1 get       k/ missing`, nil, ""},
	{"reads beside a put and a removal see either", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-30 c0 put_end   k/ ok id=1
		13-14 c1 get       k/ not-ready
		20-25 c2 get       k/ ok id=1
		40-60 c0 remove    k/ ok
		41-42 c1 get       k/ ok id=1
		50-55 c2 get       k/ missing`, nil, ""},
	{"a lost PutEnd that took effect", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-30 c0 put_end   k/ lost id=1
		40-41 c1 get       k/ not-ready
		50-51 c1 get       k/ ok id=1`, nil, ""},
	{"a lost PutEnd that did nothing", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-30 c0 put_end   k/ lost id=1
		40-41 c1 get       k/ not-ready`, nil, ""},
	{"a lost PutStart that reserved", keepsAll, `
		0-10  c0 put_start k/ lost
		12-13 c1 get       k/ missing
		20-21 c1 get       k/ not-ready
		30-31 c1 put_start k/ exists`, nil, ""},
	{"two lost PutStarts that both reserved, one much later", keepsAll, `
		0-10        c0 put_start k/ lost
		20-30       c1 put_start k/ lost
		40-41       c2 get       k/ not-ready
		31000-31010 c0 put_start k/ ok id=3
		31020-31030 c0 put_revoke k/ ok id=3
		31040-31041 c2 get       k/ missing
		31050-31051 c2 get       k/ not-ready`, nil, ""},
	{"lost removals that hit late, or not", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		11-20 c0 put_end   k/ ok id=1
		21-30 c1 remove    k/ lost
		31-40 c2 remove_regex k/ lost
		41-42 c1 get       k/ ok id=1
		51-52 c1 get       k/ missing
		60-61 c0 put_start k/ ok id=2
		62-63 c0 put_end   k/ ok id=2
		70-71 c1 get       k/ missing`, nil, ""},
	{"a repeated PutEnd whose object was removed meanwhile", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-60 c0 put_end   k/ missing id=1 attempts=2
		20-21 c1 get       k/ ok id=1
		30-40 c1 remove_force k/ ok`, nil, ""},
	{"a removal by pattern may skip what it matches", keepsAll, `
		0-10  c0 put_start g/a/ ok id=1
		0-10  c1 put_start g/b/ ok id=2
		12-20 c0 put_end   g/a/ ok id=1
		12-20 c1 put_end   g/b/ ok id=2
		30-40 c2 remove_regex g/ ok n=1
		50-51 c0 get       g/a/ missing
		50-51 c1 get       g/b/ ok id=2`, nil, ""},
	{"calls that changed nothing", keepsAll, `
		0-10  c0 put_start k/ unavailable
		20-21 c1 get       k/ missing
		30-31 c0 put_start k/ ok id=1
		32-33 c0 put_end   k/ unavailable id=1
		40-41 c1 get       k/ not-ready
		42-43 c1 remove_force k/ unavailable`, nil, ""},
	{"eviction", Rules{}, `
		0-10  c0 put_start k/ ok id=1
		11-20 c0 put_end   k/ ok id=1
		30-31 c1 get       k/ missing
		40-41 c0 put_start k/ ok id=2
		42-43 c0 put_end   k/ ok id=2
		50-51 c0 put_start k/ ok id=3`, nil, ""},
	{"an abandoned put is replaced after 30 s", keepsAll, `
		0-10        c0 put_start k/ ok id=1
		29000-29010 c1 put_start k/ exists
		30010-30020 c1 put_start k/ ok id=2
		30030-30040 c0 put_end   k/ missing id=1
		30050-30060 c1 put_end   k/ ok id=2`, nil, ""},
	{"what a drill lets be lost", Rules{NoEviction: true, Losses: []Loss{{From: 100 * time.Millisecond, To: 200 * time.Millisecond}}}, `
		0-10    c0 put_start k/ ok id=1
		11-20   c0 put_end   k/ ok id=1
		250-251 c1 get       k/ missing
		260-270 c0 put_start k/ ok id=2`, nil, ""},
	{"objects of a host that died", Rules{NoEviction: true, Losses: []Loss{{From: 100 * time.Millisecond, To: forever, Host: "h1"}}}, `
		0-10    c0 put_start k/ ok id=1 host=h1
		11-20   c0 put_end   k/ ok id=1
		250-251 c1 get       k/ missing`, nil, ""},
	{"a copy in progress is left of what was on a host that died", Rules{NoEviction: true, Losses: []Loss{{From: 100 * time.Millisecond, To: forever, Host: "h1"}}}, `
		0-10    c0 put_start k/ ok id=1 host=h1
		11-20   c0 put_end   k/ ok id=1
		250-251 c1 get       k/ not-ready
		260-261 c1 get       k/ missing`, nil, ""},
	{"terms go up, and a slow answer of the old one comes late", keepsAll, `
		0-10  c0 put_start k/ ok id=1.1
		11-20 c0 put_end   k/ ok id=1.1
		30-90 p0 get       k/ ok id=1.1 term=1
		40-50 p1 get       k/ ok id=1.1 term=2
		60-61 p0 get       k/ not-leader term=2`, nil, ""},
}

func TestSoundHistories(t *testing.T) { tell(t, sound) }

var broken = []story{
	{"an object is evicted under a lease", Rules{}, `
		0-10    c0 put_start o/ ok id=9 term=1
		12-20   c0 put_end   o/ ok id=9 term=1
		0-10    c0 put_start k/ ok id=1 term=1
		12-20   c0 put_end   k/ ok id=1 term=1
		100-110 c1 get       k/ ok id=1 term=1 leased=1100
		800-801 c2 get       k/ missing
		900-901 p0 get       o/ ok id=9 term=1`, map[string]int{L: 1}, "get: OBJECT_NOT_FOUND"},
	{"an object is removed under a lease, without force", Rules{}, `
		0-10    c0 put_start o/ ok id=9 term=1
		12-20   c0 put_end   o/ ok id=9 term=1
		0-10    c0 put_start k/ ok id=1 term=1
		12-20   c0 put_end   k/ ok id=1 term=1
		100-110 c1 get       k/ ok id=1 term=1 leased=1100
		800-801 c2 remove    k/ ok
		900-901 p0 get       o/ ok id=9 term=1`, map[string]int{L: 1}, ""},
	{"another put takes the place of an object under a lease", Rules{}, `
		0-10    c0 put_start o/ ok id=9 term=1
		12-20   c0 put_end   o/ ok id=9 term=1
		0-10    c0 put_start k/ ok id=1 term=1
		12-20   c0 put_end   k/ ok id=1 term=1
		100-110 c1 get       k/ ok id=1 term=1 leased=1100
		800-801 c2 put_start k/ ok id=1.2
		900-901 p0 get       o/ ok id=9 term=1`, map[string]int{L: 1}, ""},
	{"a lost removal does its work under a lease", Rules{}, `
		0-10    c0 put_start o/ ok id=9 term=1
		12-20   c0 put_end   o/ ok id=9 term=1
		0-10    c0 put_start k/ ok id=1 term=1
		12-20   c0 put_end   k/ ok id=1 term=1
		100-110 c1 get       k/ ok id=1 term=1 leased=1100
		200-210 c2 remove    k/ lost
		800-801 c2 get       k/ missing
		900-901 p0 get       o/ ok id=9 term=1`, map[string]int{L: 1}, ""},
	{"an acknowledged put is gone", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-20 c0 put_end   k/ ok id=1
		30-31 c1 get       k/ missing`, map[string]int{D: 1}, "get: OBJECT_NOT_FOUND"},
	{"what an upsert has replaced is read", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-20 c0 put_end   k/ ok id=1
		21-30 c1 put_start k/ ok id=2 upsert
		31-40 c1 put_end   k/ ok id=2
		50-51 c2 get       k/ ok id=1`, map[string]int{X: 1}, ""},
	{"a put takes the place of an object", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-20 c0 put_end   k/ ok id=1
		21-30 c1 put_start k/ ok id=2`, map[string]int{D: 1}, ""},
	{"a client with request ids replaces its put of an earlier term", keepsAll, `
		0-10  c0 put_start k/ ok id=1.1
		30-40 c0 put_start k/ ok id=2.1`, map[string]int{D: 1}, ""},
	{"a client without request ids replaces its put of an earlier term", unnumbered, `
		0-10  c0 put_start k/ ok id=1.1
		30-40 c0 put_start k/ ok id=2.1`, map[string]int{D: 1}, ""},
	{"another client replaces a put of an earlier term", unnumbered, `
		0-10  c0 put_start k/ ok id=1.1
		30-40 c1 put_start k/ ok id=2.1`, map[string]int{D: 1}, ""},
	{"a client without request ids replaces a put of which it was told", unnumbered, `
		0-10  c0 put_start k/ ok id=1.1
		30-40 c0 put_start k/ ok id=1.2`, map[string]int{D: 1}, ""},
	{"another client replaces a put of which nobody heard", unnumbered, `
		0-10  c0 put_start k/ lost
		20-21 c1 get       k/ not-ready
		30-40 c1 put_start k/ ok id=2`, map[string]int{V: 1}, ""},
	{"an acknowledged put does not exist", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-20 c0 put_end   k/ ok id=1
		30-31 c1 exist     k/ false`, map[string]int{D: 1}, "put_end"},
	{"an acknowledged put is taken back", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-20 c0 put_end   k/ ok id=1
		30-31 c1 get       k/ not-ready`, map[string]int{D: 1}, "REPLICA_IS_NOT_READY"},
	{"a removal by pattern that removed nothing", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-20 c0 put_end   k/ ok id=1
		22-25 c2 remove_regex k ok n=0
		30-31 c1 get       k/ missing`, map[string]int{D: 1}, ""},
	{"another put is where one was acknowledged", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-20 c0 put_end   k/ ok id=1
		30-31 c1 put_start k/ ok id=2`, map[string]int{D: 1}, "object 2"},
	{"a pinned object is evicted", Rules{}, `
		0-10  c0 put_start k/ ok id=1 pinned
		12-20 c0 put_end   k/ ok id=1
		30-31 c1 get       k/ missing`, map[string]int{D: 1}, ""},
	{"a removal before a put took it", keepsAll, `
		0-10  c1 remove_force k/ missing
		12-20 c0 put_start k/ ok id=2
		22-30 c0 put_end   k/ ok id=2
		40-41 c1 get       k/ missing`, map[string]int{D: 1}, ""},
	{"an object of another host is not ready", Rules{NoEviction: true, Losses: []Loss{{From: 0, To: forever, Host: "h1"}}}, `
		0-10    c0 put_start k/ ok id=1 host=h2
		11-20   c0 put_end   k/ ok id=1
		250-251 c1 get       k/ not-ready`, map[string]int{D: 1}, ""},
	{"objects of another host are gone", Rules{NoEviction: true, Losses: []Loss{{From: 0, To: forever, Host: "h1"}}}, `
		0-10    c0 put_start k/ ok id=1 host=h2
		11-20   c0 put_end   k/ ok id=1
		250-251 c1 get       k/ missing`, map[string]int{D: 1}, ""},
	{"what was put after the loss is gone", Rules{NoEviction: true, Losses: []Loss{{From: 100 * time.Millisecond, To: 200 * time.Millisecond}}}, `
		210-220 c0 put_start k/ ok id=1
		221-230 c0 put_end   k/ ok id=1
		250-251 c1 get       k/ missing`, map[string]int{D: 1}, ""},
	{"a reservation is gone when its put ends", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-20 c0 put_end   k/ missing id=1`, map[string]int{D: 1}, "put_end of object 1: OBJECT_NOT_FOUND"},
	{"a reservation is gone, for a reader", Rules{}, `
		0-10  c0 put_start k/ ok id=1
		12-20 c1 get       k/ missing`, map[string]int{D: 1}, ""},
	{"a reservation is replaced too early", keepsAll, `
		0-10        c0 put_start k/ ok id=1
		29000-29010 c1 put_start k/ ok id=2`, map[string]int{D: 1}, ""},
	{"a removed object is back", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		11-20 c0 put_end   k/ ok id=1
		30-40 c1 remove_force k/ ok
		41-42 c2 get       k/ missing
		50-51 c2 get       k/ ok id=1`, map[string]int{X: 1}, "get of object 1"},
	{"an object removed by its exact pattern is back", Rules{}, `
		0-10  c0 put_start k/ ok id=1
		11-20 c0 put_end   k/ ok id=1
		30-40 c1 remove_regex k/ ok n=1 exact
		50-51 c2 get       k/ ok id=1`, map[string]int{X: 1}, ""},
	{"a replaced object is back", Rules{}, `
		0-10  c0 put_start k/ ok id=1
		11-20 c0 put_end   k/ ok id=1
		30-40 c1 put_start k/ ok id=2
		41-50 c1 put_end   k/ ok id=2
		60-61 c2 get       k/ ok id=1`, map[string]int{X: 1}, ""},
	{"a revoked put is readable", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		11-20 c0 put_revoke k/ ok id=1
		60-61 c2 get       k/ ok id=1`, map[string]int{X: 1}, ""},
	{"an old primary answers", keepsAll, `
		0-10  c0 put_start k/ ok id=1.1
		11-20 c0 put_end   k/ ok id=1.1
		40-50 p1 get       k/ ok id=1.1 term=2
		51-52 p0 get       k/ ok id=1.1 term=1
		60-61 p1 get       k/ ok id=1.1 term=2`, map[string]int{F: 1}, "in term 1, although term 2"},
	{"an old primary says that there is nothing", keepsAll, `
		10-11 p1 get       k/ missing term=2
		12-13 p0 get       k/ missing term=1`, map[string]int{F: 1}, ""},
	{"an old primary reserves", keepsAll, `
		0-5   c1 mark      serves ok term=2
		10-20 c0 put_start k/ ok id=1.7 term=2`, map[string]int{F: 1}, "object"},
	{"an object that nobody has put", keepsAll, `
		0-10  c0 get       k/ ok id=7`, map[string]int{V: 1}, "does not fit"},
	{"a read of a put that has not ended", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-13 c1 get       k/ ok id=1
		14-20 c0 put_end   k/ ok id=1`, map[string]int{V: 1}, ""},
	{"an effect that is taken back", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		12-50 c0 put_end   k/ ok id=1
		20-21 c1 get       k/ ok id=1
		30-31 c1 get       k/ not-ready`, map[string]int{V: 1}, "30"},
	{"one removal, two lost objects", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		11-20 c0 put_end   k/ ok id=1
		21-90 c1 remove    k/ ok
		30-31 c2 get       k/ missing
		32-33 c0 put_start k/ ok id=2
		34-35 c0 put_end   k/ ok id=2
		40-41 c2 get       k/ missing`, map[string]int{D: 1}, ""},
	{"two removals of one object", keepsAll, `
		0-10  c0 put_start k/ ok id=1
		11-20 c0 put_end   k/ ok id=1
		21-30 c1 remove    k/ ok
		31-40 c2 remove    k/ ok`, map[string]int{V: 1}, ""},
	{"two lost removals, three lost objects", keepsAll, `
		0-1   c0 put_start k/ ok id=1
		2-3   c0 put_end   k/ ok id=1
		4-5   c1 remove    k/ lost
		4-5   c2 remove    k/ lost
		6-7   c0 put_start k/ ok id=2
		8-9   c0 put_end   k/ ok id=2
		10-11 c0 put_start k/ ok id=3
		12-13 c0 put_end   k/ ok id=3
		14-15 c0 get       k/ missing`, map[string]int{D: 1}, ""},
	{"no room for a key that has an object", keepsAll, `
		0-1   c0 put_start k/ ok id=1
		2-3   c0 put_start k/ no-room`, map[string]int{D: 1}, ""},
	{"an object that could be read was not there yet", Rules{}, `
		0-10  c0 put_start k/ ok id=1
		12-20 c0 put_end   k/ ok id=1
		30-31 c1 get       k/ missing
		32-33 c1 get       k/ ok id=1`, map[string]int{V: 1}, ""},
}

func TestBrokenHistories(t *testing.T) { tell(t, broken) }

func tell(t *testing.T, stories []story) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			v, err := check(t.Context(), script(t, s.history), s.rules)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]int{D: 0, X: 0, V: 0, F: 0}
			if s.rules.Quota > 0 {
				want[Q] = 0
			}
			maps.Copy(want, s.want)
			if !maps.Equal(v.Violations, want) || v.OK != (len(s.want) == 0) {
				t.Errorf("got violations %v, OK %t; want violations %v", v.Violations, v.OK, want)
			}
			if all := strings.Join(v.Examples, "\n"); !strings.Contains(all, s.text) || (all == "") != v.OK {
				t.Errorf("got the description %q, want one with %q", all, s.text)
			}
		})
	}
}

// What cannot be decided is not OK.
func TestJudgeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := check(ctx, script(t, broken[0].history+sound[0].history), Rules{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	if v := new(tally).verdict(Verdict{Undecided: 1}); v.OK {
		t.Error("got OK for a verdict with an undecided key, want it not OK")
	}
}
