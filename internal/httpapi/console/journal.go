package console

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
)

const (
	// maxEvents bounds the events that are kept, and shownEvents those of a page.
	maxEvents   = 2000
	shownEvents = 200
	// tailCommits is how far behind the state's position a tail begins, also when
	// nobody has looked for long. Where these commits have fewer events than a page
	// shows, since most are beats, it begins tailFurther times as far back, and so on.
	tailCommits = 128
	tailFurther = 16
	// keepTail is how long a tail is shown before more is read.
	keepTail = time.Second
)

// A tail is the newest events of the journal. It is read on while somebody looks.
type tail struct {
	mu     sync.Mutex // guards all below
	events []*pb.EventsResponse
	next   metadata.Seq // to read
}

// read reads on, up to the newest commit.
func (t *tail) read(ctx context.Context, n Node, at metadata.Position) error {
	t.mu.Lock()
	if n := len(t.events); n > 0 && at.Seq+1 < t.next && uint64(at.Term) > t.events[n-1].GetTerm() {
		t.events, t.next = nil, 0 // the journal was founded anew, from an older state
	}
	known := t.next
	t.mu.Unlock()
	var fresh []*pb.EventsResponse
	for back := metadata.Seq(tailCommits); ; back *= tailFurther {
		from := max(known, at.Seq-min(at.Seq, back))
		var err error
		if fresh, err = newest(ctx, n, from); err != nil {
			return err
		}
		if from == known || len(fresh) >= shownEvents {
			break
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events, t.next = bounded(append(t.events, fresh...), maxEvents), max(known, at.Seq+1)
	if len(fresh) > 0 { // some may be newer than the position
		t.next = max(t.next, metadata.Seq(fresh[len(fresh)-1].GetSequence())+1)
	}
	return nil
}

func newest(ctx context.Context, n Node, from metadata.Seq) (list []*pb.EventsResponse, err error) {
	for e, err := range n.Events(ctx, from, false) {
		if err != nil {
			return nil, err
		}
		e.Text, e.Json = cut(e.GetText()), ""
		list = bounded(append(list, e), maxEvents)
	}
	return list, nil
}

type journalView struct {
	Type, Text string // the filters
	Types      []string
	Events     []event // newest first
	Off        bool    // there is no journal
}

// An event is one of the journal's, with about when it was by this node's wall clock.
type event struct {
	*pb.EventsResponse
	At time.Time
}

func (c *console) journal(r *http.Request) (any, error) {
	v := journalView{Type: r.FormValue("type"), Text: r.FormValue("text")}
	store := c.Node.Store()
	if store == nil {
		return v, errNoState
	}
	_, err := c.tailed.get(r.Context(), c.Now, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.tail.read(ctx, c.Node, store.Position())
	})
	if errs.KindOf(err) == errs.NotSupported {
		v.Off, err = true, nil
	}
	now, clusterNow := c.Now(), c.Gate.ClusterTime(store)
	c.tail.mu.Lock()
	defer c.tail.mu.Unlock()
	for _, e := range slices.Backward(c.tail.events) {
		if !slices.Contains(v.Types, e.GetType()) {
			v.Types = append(v.Types, e.GetType())
		}
		if len(v.Events) < shownEvents && (v.Type == "" || v.Type == e.GetType()) && strings.Contains(e.GetText(), v.Text) {
			v.Events = append(v.Events, event{e, now.Add(-clusterNow.Sub(metadata.Time(e.GetClusterTimeMs())))})
		}
	}
	slices.Sort(v.Types)
	return v, err
}
