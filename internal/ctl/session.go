package ctl

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
)

// writer is the client id under which objects are put unless another one is
// given: always the same, so that put-end can follow put-start.
func writer() uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceDNS, []byte("masterctl.understudy")) }

// A session is a client of the cluster during one command.
type session struct {
	*client.Client
	leader leaderWatch
}

// reign is that of the primary that answered last.
func (s *session) reign() reign { return s.leader.reign(s.leader.number.Load()) }

// A reign says how long ago a primary was elected, compared with others. Over
// gRPC that is its term. Over Mooncake's protocol, which does not tell the term,
// it is the version of the master's view. Both grow.
type reign struct {
	Term *uint64 `json:"term,omitempty"`
	View *uint64 `json:"view_version,omitempty"`
}

// when says it for people: "term 6" or "view version 6".
func (r reign) when() string {
	if r.Term != nil {
		return fmt.Sprintf("term %d", *r.Term)
	}
	return fmt.Sprintf("view version %d", *r.View)
}

// A leaderWatch remembers who answers. It is a client.Observer.
type leaderWatch struct {
	protocol client.Protocol
	number   atomic.Uint64                    // of the reign
	told     func(format string, args ...any) // gets news for people; may be nil
}

func (w *leaderWatch) reign(number uint64) reign {
	if w.protocol == client.Mooncake {
		return reign{View: &number}
	}
	return reign{Term: &number}
}

func (w *leaderWatch) Call(string, int, errs.Kind, time.Duration) {}

func (w *leaderWatch) LeaderChanged(l client.Leader) {
	if before := w.number.Swap(l.Term); before != 0 && w.told != nil {
		w.told("the primary is %s at %s now (%s)\n", l.NodeID, l.Address, w.reign(l.Term).when())
	}
}

func (w *leaderWatch) Remounted(segments int, err error) {
	switch {
	case w.told == nil:
	case err != nil:
		w.told("the master did not know the memory any more, and did not take it again: %v; trying again\n", err)
	default:
		// It was silent for too long, or somebody has unmounted them: a ping does not tell.
		w.told("the master did not know the memory any more; %d segment(s) mounted again\n", segments)
	}
}

// newSession returns a client under an id. It connects to nobody yet.
func (g *globals) newSession(id uuid.UUID, told func(format string, args ...any)) (*session, error) {
	s := &session{leader: leaderWatch{protocol: g.protocol, told: told}}
	config := g.clientConfig(id)
	config.Observer = &s.leader
	var err error
	if s.Client, err = client.New(config); err != nil {
		return nil, usageError{err}
	}
	return s, nil
}

// call runs f with a client, within the command's time limit.
func (g *globals) call(cmd *cobra.Command, id uuid.UUID, f func(context.Context, *session) error) error {
	ctx, cancel, err := g.begin(cmd)
	if err != nil {
		return err
	}
	defer cancel()
	s, err := g.newSession(id, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	return f(ctx, s)
}

// failedItems are the items of a batch that failed.
type failedItems struct {
	of     int // items in all
	names  []string
	errors []error
}

// add notes an item if it failed.
func (f *failedItems) add(name string, err error) {
	f.of++
	if err != nil {
		f.names, f.errors = append(f.names, name), append(f.errors, err)
	}
}

// err returns nil if no item failed.
func (f *failedItems) err() error {
	if len(f.errors) == 0 {
		return nil
	}
	return f
}

func (f *failedItems) Unwrap() []error { return f.errors }

func (f *failedItems) Error() string {
	const most = 20
	var b strings.Builder
	if f.of > 1 {
		fmt.Fprintf(&b, "%d of %d failed:", len(f.errors), f.of)
	}
	for i, err := range f.errors[:min(len(f.errors), most)] {
		if f.of > 1 {
			b.WriteString("\n  ")
		}
		fmt.Fprintf(&b, "%s: %s", f.names[i], numbered(err))
	}
	return b.String()
}

// faultResult is an error in JSON.
type faultResult struct {
	Kind    string `json:"kind"`
	Number  int32  `json:"number"` // the C++ master's
	Message string `json:"message"`
}

func faultOf(err error) *faultResult {
	if err == nil {
		return nil
	}
	kind := errs.KindOf(err)
	return &faultResult{kind.String(), kind.Number(), err.Error()}
}
