package ctl

import (
	"errors"
	"fmt"
	"strings"

	"github.com/understudy-store/understudy/errs"
)

// explain makes an error a text for people that ends with what to do about it.
func explain(err error) string {
	text := numbered(err)
	if advice := adviceFor(err); advice != "" {
		text += "\nwhat to do: " + advice
	}
	return text
}

// adviceFor returns what a user may do about an error, or nothing. A context
// that has ended counts as Unresolved, but says of no call that its outcome is
// open.
func adviceFor(err error) string {
	kind := errs.KindOf(err)
	if kind == errs.Unresolved && !errors.Is(err, errs.Unresolved) {
		return ""
	}
	return advices[kind]
}

// readError is adminError for a call that changes nothing: without an answer
// nothing is open.
func readError(err error) error {
	err = adminError(err)
	var e *errs.Error
	if errors.As(err, &e) && e.Kind == errs.Unresolved {
		changed := *e
		changed.Kind = errs.Unavailable
		return &changed
	}
	return err
}

// numbered is the text of an error with the C++ master's number beside the
// name of its kind.
func numbered(err error) string {
	var items *failedItems
	if errors.As(err, &items) {
		return err.Error() // its lines have their numbers
	}
	kind := errs.KindOf(err)
	return strings.Replace(err.Error(), kind.String(), fmt.Sprintf("%v (%d)", kind, kind.Number()), 1)
}

const seeStatus = "masterctl status shows who serves and who could take over; if nobody answers, check --address or --etcd_endpoints"

// advices say what a user may do about an error.
var advices = map[errs.Kind]string{
	errs.ObjectNotFound:    "put it first (masterctl put KEY), or look whether it was removed or evicted: masterctl events",
	errs.ObjectExists:      "use another key, or remove the object first: masterctl rm KEY; a reservation that is not ended can be replaced after 30 s",
	errs.ObjectHasLease:    "wait until its readers' leases have ended, or remove it with --force",
	errs.ReplicaNotReady:   "its put is not ended: masterctl put-end KEY, or put-revoke",
	errs.NoAvailableHandle: "lend memory to the store (masterctl segments mount NAME --size 64MiB), or wait for an eviction and try again",
	errs.IllegalClient:     "name the client that started the put with --client-id; put-start prints it",
	errs.SegmentNotFound:   "masterctl segments lists those that are mounted",
	errs.Unavailable:       seeStatus,
	errs.NotLeader:         seeStatus,
	errs.Unresolved:        "the outcome is open, so look before you repeat it; --timeout gives it more time; " + seeStatus,
	errs.NotSupported:      "it needs a cluster: a master with --enable_ha=true (the default)",
}
