package ctl

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/cli"
)

// writer is the client id under which objects are put unless another one is given or the
// certificate is for one: always the same, so that put-end can follow put-start.
func writer() uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceDNS, []byte("masterctl.understudy")) }

// A session is a client of the cluster during one command, and its Observer.
type session struct {
	*client.Client
	mooncake bool
	number   atomic.Uint64                    // of the term
	pings    atomic.Uint64                    // that were answered
	remounts atomic.Uint64                    // tried
	news     func(format string, args ...any) // prints what happens; may be nil
}

// A term is the term of the primary that answered. Mooncake's protocol carries a view version
// instead, which also grows with every new primary.
type term struct {
	Term *uint64 `json:"term,omitempty"`
	View *uint64 `json:"view_version,omitempty"`
}

// when returns the term for people: "term 6" or "view version 6".
func (t term) when() string {
	if t.Term != nil {
		return fmt.Sprintf("term %d", *t.Term)
	}
	return fmt.Sprintf("view version %d", *t.View)
}

// term returns the term of the primary that answered last.
func (s *session) term() term {
	number := s.number.Load()
	if s.mooncake {
		return term{View: &number}
	}
	return term{Term: &number}
}

// Call counts pings that are answered. The commands see what other calls return.
func (s *session) Call(method string, _ int, kind errs.Kind, _ time.Duration) {
	if method == "Ping" && kind == errs.OK {
		s.pings.Add(1)
	}
}

// LeaderChanged keeps the term, and prints every change but the first.
func (s *session) LeaderChanged(l client.Leader) {
	if before := s.number.Swap(l.Term); before != 0 && s.news != nil {
		s.news("the primary is %s at %s now (%s)\n", cli.Printable(l.NodeID), cli.Printable(l.Address), s.term().when())
	}
}

// Remounted prints that the master had unmounted the segments: it got no ping for too long,
// or somebody unmounted them. The answer to a ping does not tell the two apart.
func (s *session) Remounted(segments int, err error) {
	s.remounts.Add(1)
	switch {
	case s.news == nil:
	case err != nil:
		s.news("the master had forgotten the segments, and refused to mount them again: %s; trying again\n", cli.Printable(err.Error()))
	default:
		s.news("the master had forgotten the segments; %d mounted again\n", segments)
	}
}

// session returns a client with an id. It connects to etcd only, if that demands a user.
func (f *Flags) session(ctx context.Context, id uuid.UUID, news func(format string, args ...any)) (*session, error) {
	s := &session{mooncake: f.Mooncake, news: news}
	config, err := f.Client(id)
	if err != nil {
		return nil, err
	}
	config.Observer = s
	if s.Client, err = client.NewContext(ctx, config); errs.KindOf(err) == errs.Unavailable {
		return nil, err
	}
	return s, cli.Misuse(err)
}

// call runs a function with a client, within the command's time limit. A zero id means that of
// the certificate, or else writer.
func (f *Flags) call(cmd *cobra.Command, id uuid.UUID, run func(context.Context, *session) error) error {
	return f.Run(cmd, func(ctx context.Context) error {
		s, err := f.session(ctx, cmp.Or(id, f.ownClientID(), writer()), nil)
		if err != nil {
			return err
		}
		defer s.Close()
		return run(ctx, s)
	})
}

type failedItems struct {
	of     int // items in all
	names  []string
	errors []error
}

type faultResult struct {
	Kind    string `json:"kind"`
	Number  int32  `json:"number"` // the C++ master's
	Message string `json:"message"`
}

// add counts an item, and returns its error for JSON, nil if it did not fail.
func (f *failedItems) add(name string, err error) *faultResult {
	f.of++
	if err == nil {
		return nil
	}
	f.names, f.errors = append(f.names, name), append(f.errors, err)
	kind := errs.KindOf(err)
	return &faultResult{kind.String(), kind.Number(), err.Error()}
}

func (f *failedItems) Unwrap() []error { return f.errors }

func (f *failedItems) Error() string {
	const most = 20
	var lines []string
	for i, err := range f.errors[:min(len(f.errors), most)] {
		lines = append(lines, cli.Key(f.names[i])+": "+cli.Numbered(err))
	}
	if f.of == 1 {
		return lines[0]
	}
	return fmt.Sprintf("%d of %d failed:\n  %s", len(f.errors), f.of, strings.Join(lines, "\n  "))
}
