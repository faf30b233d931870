package cli

import (
	"strings"
	"testing"

	"github.com/understudy-store/understudy/errs"
)

// An error that says what to do is not followed by the general advice, which says less.
func TestAdviceIsGivenOnce(t *testing.T) {
	for text, advised := range map[string]bool{
		"etcd's database has reached 90 % of its quota; nothing was changed, try again":        false,
		"nodes that held the state are away: b; masterctl forget --yes b, and ask again":       false,
		"no other node can take over; start a standby and wait until it is promotable":         false,
		"nothing was changed; no node serves: a: the term has ended; look at masterctl status": true,
		"no node answers": true,
		"the leases could not be checked against the journal": true,
		"etcdserver: mvcc: database space exceeded":           true,
		"one of the segments s takes no new objects already":  true,
	} {
		got := strings.Count(explain(errs.New(errs.Unavailable, "Op", "%s", text), "get"), "what to do: masterctl status shows")
		if (got == 1) != advised || got > 1 {
			t.Errorf("%q: the general advice stands there %d times", text, got)
		}
	}
}
