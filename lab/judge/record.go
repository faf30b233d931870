package judge

import (
	"fmt"
	"strings"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
)

// A Call is the kind of a client's call.
type Call string

// The calls. Mark is not a call: it records what a drill did, or that a client saw a new
// primary.
const (
	PutStart    Call = "put_start"
	PutEnd      Call = "put_end"
	PutRevoke   Call = "put_revoke"
	Get         Call = "get"
	Exist       Call = "exist"
	Remove      Call = "remove"
	RemoveForce Call = "remove_force"
	RemoveRegex Call = "remove_regex"
	Mark        Call = "mark"
)

func (c Call) mutates() bool { return c != Get && c != Exist && c != Mark }

// An Outcome is the outcome of a call, as far as its client knows.
type Outcome string

// The outcomes. A failed call has changed nothing. An ambiguous one may have changed
// something, or may still do so.
const (
	OK        Outcome = "ok"
	Failed    Outcome = "failed"
	Ambiguous Outcome = "ambiguous"
)

// A Record is one call, as its client saw it. Times are on the load's clock.
type Record struct {
	Call    Call          `json:"call"`
	Client  int           `json:"client"` // from 0; probes count down from -1
	Key     string        `json:"key"`    // of RemoveRegex: the prefix of its keys; of Mark: what happened
	Start   time.Duration `json:"start_ns"`
	End     time.Duration `json:"end_ns"`
	Outcome Outcome       `json:"outcome"`
	Kind    errs.Kind     `json:"-"`                // why it failed, errs.OK if it did not
	Answer  string        `json:"answer,omitempty"` // the name of Kind, in a saved history
	// ID is the id of the object: the one that PutStart or Get returned, or that PutEnd or
	// PutRevoke named.
	ID     client.ObjectID `json:"id,string,omitempty"`
	Size   uint64          `json:"size,omitempty"`   // of the object, in bytes
	Exists bool            `json:"exists,omitempty"` // of Exist
	// Leased is when the lease of a Get on memory ends; 0 if no replica is in memory.
	Leased time.Duration `json:"leased_ns,omitempty"`
	Count  uint64        `json:"removed,omitempty"` // of RemoveRegex
	// Exact says that the pattern of a RemoveRegex was that one key.
	Exact bool `json:"exact,omitempty"`
	// Term is the term of a probe's answer. For a client's call it is the highest term that
	// the client knew before, so that of the answer is not lower.
	Term     uint64 `json:"term,omitempty"`
	Attempts int    `json:"attempts,omitempty"` // how many attempts the client made
	Node     string `json:"node,omitempty"`     // the node that a probe asked
	Host     string `json:"host,omitempty"`     // of PutStart: the endpoint that lends the memory
	Pinned   bool   `json:"pinned,omitempty"`   // of PutStart: pinned hard, so never evicted
	Upsert   bool   `json:"upsert,omitempty"`   // of PutStart: replaces whatever is under the key
}

// answered reports whether the primary itself answered.
func (r *Record) answered() bool {
	return r.Outcome == OK || r.Outcome == Failed && r.Kind != errs.Unavailable && r.Kind != errs.NotLeader && r.Kind != errs.Unresolved
}

func (r *Record) probe() bool { return r.Client < 0 }

// settle fills in the outcome that follows from an error, nil for success.
func (r *Record) settle(err error) {
	r.Kind = errs.KindOf(err)
	switch {
	case err == nil:
		r.Outcome = OK
	case r.Call.mutates() && !r.changedNothing():
		r.Outcome = Ambiguous
	default:
		r.Outcome = Failed
	}
}

// changedNothing reports whether a mutation's error proves that it changed nothing. A removal
// by pattern is made in parts, so only a refused pattern proves that.
func (r *Record) changedNothing() bool {
	switch r.Kind {
	case errs.Unresolved, errs.Internal, errs.InvalidVersion:
		return false
	case errs.InvalidParams, errs.NotSupported:
		return true
	case errs.ObjectNotFound:
		return r.Call != PutStart && r.Call != RemoveRegex // the put may have been made, and replaced before its answer came
	default:
		return r.Call != RemoveRegex
	}
}

// String returns the record in one line, for people.
func (r *Record) String() string {
	if r.Call == Mark {
		return fmt.Sprintf("%v: %s", seconds(r.End), r.Key)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v to %v: client %d", seconds(r.Start), seconds(r.End), r.Client)
	if r.Node != "" {
		fmt.Fprintf(&b, " at %s", r.Node)
	}
	fmt.Fprintf(&b, ": %s", r.Call)
	if r.Upsert {
		b.WriteString(" (upsert)")
	}
	if r.ID != 0 {
		fmt.Fprintf(&b, " of object %v", r.ID)
	}
	switch {
	case r.Outcome == Failed:
		fmt.Fprintf(&b, ": %v", r.Kind)
	case r.Outcome == Ambiguous:
		b.WriteString(": no answer")
	case r.Call == Exist:
		fmt.Fprintf(&b, ": %t", r.Exists)
	case r.Call == RemoveRegex:
		fmt.Fprintf(&b, ": %d removed", r.Count)
	default:
		b.WriteString(": ok")
	}
	if r.probe() {
		fmt.Fprintf(&b, ", term %d", r.Term)
	}
	return b.String()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.4fs", d.Seconds()) }
