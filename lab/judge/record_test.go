package judge

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
)

func TestOutcomes(t *testing.T) {
	for _, tt := range []struct {
		call     Call
		err      error
		want     Outcome
		answered bool
	}{
		{PutStart, nil, OK, true},
		{PutStart, errs.ObjectExists, Failed, true},
		{PutStart, errs.Unavailable, Failed, false},
		{PutStart, errs.NotLeader, Failed, false},
		{PutStart, errs.Unresolved, Ambiguous, false},
		{PutStart, errs.ObjectNotFound, Ambiguous, false}, // made, and replaced before its answer came
		{Remove, errs.Internal, Ambiguous, false},
		{Remove, errors.New("anything"), Ambiguous, false},
		{RemoveRegex, errs.Unavailable, Ambiguous, false}, // a part may be done
		{RemoveRegex, errs.InvalidParams, Failed, true},
		{Get, errs.Unresolved, Failed, false},
		{Get, errs.ObjectNotFound, Failed, true},
	} {
		r := Record{Call: tt.call}
		if r.settle(tt.err); r.Outcome != tt.want || r.answered() != tt.answered {
			t.Errorf("%s with error %v: got %s, answered %t; want %s, answered %t", tt.call, tt.err, r.Outcome, r.answered(), tt.want, tt.answered)
		}
	}
}

// recorded is a load that has recorded a history, by one client.
func recorded(t *testing.T, history string) *Load {
	t.Helper()
	b := newBench()
	for _, r := range script(t, history) {
		b.load.add(r)
	}
	return b.load
}

func TestOutageAndCounts(t *testing.T) {
	l := recorded(t, `
		0-100    c0 get       k/ missing
		110-400  c0 get       k/ missing
		410-600  c0 put_start k/ unavailable
		610-800  c0 remove    k/ lost
		810-910  c0 exist     k/ true
		920-1000 c0 exist     k/ true
		930-990  c1 remove_regex k/ lost`)
	l.ended = 1050 * time.Millisecond
	for since, want := range map[time.Duration]time.Duration{0: 510, 400: 510, 500: 510, 905: 510, 911: 90, 1001: 50} {
		if got := l.Outage(since * time.Millisecond); got != want*time.Millisecond {
			t.Errorf("since %d ms: got an outage of %v, want %d ms", since, got, want)
		}
	}
	l.ended = 5 * time.Second
	if got := l.Outage(950 * time.Millisecond); got != 4*time.Second {
		t.Errorf("an outage that lasts: got %v, want 4s", got)
	}
	c := l.Counts()
	if c.Calls != 7 || c.OK != 2 || c.Ambiguous != 2 || c.Unanswered != 2 || c.Failed["OBJECT_NOT_FOUND"] != 2 || c.Failed["UNAVAILABLE_IN_CURRENT_STATUS"] != 1 {
		t.Errorf("got %+v, want 7 calls: 2 ok, 2 ambiguous, 2 unanswered, 2 that found nothing, 1 unavailable", c)
	}
}

func TestSave(t *testing.T) {
	l := recorded(t, `
		5-10 c0 put_start k/ ok id=7
		11-12 p0 get k/ missing term=3`)
	l.Mark("the end")
	l.MayLose("it is over")()
	dir := filepath.Join(t.TempDir(), "new")
	if err := l.Save(dir); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []map[string]any
	for s := bufio.NewScanner(f); s.Scan(); {
		var one map[string]any
		if err := json.Unmarshal(s.Bytes(), &one); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, one)
	}
	find := func(call string) map[string]any {
		for _, one := range lines {
			if one["call"] == call {
				return one
			}
		}
		t.Fatalf("the saved history: got %v, want a record of %s", lines, call)
		return nil
	}
	if put := find("put_start"); put["id"] != "7" || put["outcome"] != "ok" || put["start_ns"] != 5e6 {
		t.Errorf("got %v, want the put of object 7 at 5 ms", put)
	}
	if get := find("get"); get["answer"] != "OBJECT_NOT_FOUND" || get["client"] != -1.0 || get["term"] != 3.0 {
		t.Errorf("got %v, want what the first probe did not find in term 3", get)
	}
	if len(lines) != 5 {
		t.Errorf("got %d lines, want 5", len(lines))
	}
	var rules Rules
	b, err := os.ReadFile(filepath.Join(dir, "rules.json"))
	if err != nil || json.Unmarshal(b, &rules) != nil || len(rules.Losses) != 1 || rules.Losses[0].To == forever {
		t.Errorf("got %s, %v; want rules with one loss that has ended", b, err)
	}
}

func TestKeysAreGivenUp(t *testing.T) {
	k := newKeyring("run", 16, true)
	if one := k.slots[7].Load(); !one.pinned || k.slots[6].Load().pinned {
		t.Error("pinned keys: got others, want every eighth, as 7 and not 6")
	}
	first := k.slots[3].Load()
	for i := range 2 * maxKeyCalls {
		if gone := k.used(first, false); gone != (i == maxKeyCalls-1) {
			t.Fatalf("call %d: got given up: %t, want it given up with call %d", i, gone, maxKeyCalls-1)
		}
	}
	second := k.slots[3].Load()
	for i := range 2 * maxKeyAmbiguous {
		if gone := k.used(second, true); gone != (i == maxKeyAmbiguous-1) {
			t.Fatalf("ambiguous call %d: got given up: %t, want it given up with call %d", i, gone, maxKeyAmbiguous-1)
		}
	}
	if third := k.slots[3].Load(); third.name != "run/0/3/2/" || len(k.ever()) != 18 {
		t.Errorf("got key %q of %d, want run/0/3/2/ of 18", third.name, len(k.ever()))
	}
	if got := under([]string{"a/1/", "a/10/", "b/1/", "b/1/2/", "c/"}, "b/1/"); len(got) != 2 || got[1] != "b/1/2/" {
		t.Errorf("got %q, want the two keys under b/1/", got)
	}
}
