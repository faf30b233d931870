package judge

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
)

// kinds are the answers that scripts name.
var kinds = map[string]errs.Kind{
	"missing": errs.ObjectNotFound, "not-ready": errs.ReplicaNotReady, "exists": errs.ObjectExists, "no-room": errs.NoAvailableHandle,
	"leased": errs.ObjectHasLease, "too-late": errs.InvalidWrite, "illegal": errs.IllegalClient, "unavailable": errs.Unavailable, "not-leader": errs.NotLeader,
}

// script reads a history, a record a line: the time in milliseconds, from-to;
// who (c0, or p0 for a probe); the call; the key; the answer (ok, true, false,
// lost for none, or one of kinds); then id=, term=, n= (removed), attempts=,
// host=, size=, leased= (until then), and the words pinned, upsert and exact. Ids may be term.counter.
func script(t *testing.T, text string) []Record {
	t.Helper()
	var history []Record
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 5 {
			t.Fatalf("a history's line: got %q, want at least 5 fields", line)
		}
		r, err := parse(fields)
		if err != nil {
			t.Fatalf("a history's line %q: got error %v, want a record", line, err)
		}
		history = append(history, r)
	}
	return history
}

func parse(fields []string) (r Record, err error) {
	var from, to int
	if _, err := fmt.Sscanf(fields[0], "%d-%d", &from, &to); err != nil {
		return r, err
	}
	who, err := strconv.Atoi(fields[1][1:])
	if err != nil {
		return r, err
	}
	if fields[1][0] == 'p' {
		who = -1 - who
	}
	r = Record{
		Start: time.Duration(from) * time.Millisecond, End: time.Duration(to) * time.Millisecond,
		Client: who, Call: Call(fields[2]), Key: fields[3], Outcome: OK, Attempts: 1,
	}
	switch answer := fields[4]; answer {
	case "ok", "false":
	case "true":
		r.Exists = true
	case "lost":
		r.Outcome, r.Kind = Ambiguous, errs.Unresolved
	default:
		kind, ok := kinds[answer]
		if !ok {
			return r, fmt.Errorf("got the answer %q, want ok, true, false, lost or a kind", answer)
		}
		r.Outcome, r.Kind = Failed, kind
	}
	for _, field := range fields[5:] {
		if err := r.parseOption(field); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (r *Record) parseOption(field string) (err error) {
	name, value, _ := strings.Cut(field, "=")
	number := func() (n int) {
		if err == nil {
			n, err = strconv.Atoi(value)
		}
		return n
	}
	switch name {
	case "id":
		term, counter, both := strings.Cut(value, ".")
		if !both {
			r.ID = client.ObjectID(number())
			return err
		}
		var t, c int
		if t, err = strconv.Atoi(term); err == nil {
			c, err = strconv.Atoi(counter)
		}
		r.ID = client.ObjectID(metadata.NewObjectID(metadata.Term(t), uint64(c)))
	case "term":
		r.Term = uint64(number())
	case "n":
		r.Count = uint64(number())
	case "attempts":
		r.Attempts = number()
	case "size":
		r.Size = uint64(number())
	case "leased":
		r.Leased = time.Duration(number()) * time.Millisecond
	case "host":
		r.Host = value
	case "pinned":
		r.Pinned = true
	case "upsert":
		r.Upsert = true
	case "exact":
		r.Exact = true
	default:
		err = fmt.Errorf("got the option %q, want one that script's comment lists", name)
	}
	return err
}
