package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/lab/judge"
)

// The drills with very many objects.

const (
	removeGroups  = 50
	removeWorkers = 8
	againPerGroup = 20
)

// A removal is what a client knows of its removal of a group.
type removal struct {
	acknowledged bool
	again        []string // keys whose puts after the removal were acknowledged
}

// removeMany removes very many objects and kills the primary in the middle. First it removes
// by pattern, while recorded clients work; then everything, without them.
func removeMany(ctx context.Context, e *Env) {
	each := max(againPerGroup+1, e.Objects/removeGroups)
	e.rounds(ctx, episode{work: &work{}}, func(ctx context.Context) {
		e.withMany(ctx, each, func(b *bulk, p pair) { e.removedStay(ctx, b, e.removeGroups(ctx, b, p), each) })
	})
	e.episode(ctx, episode{}, func(ctx context.Context) {
		e.withMany(ctx, each, func(b *bulk, p pair) { e.removeAll(ctx, b, p) })
		e.compare(ctx)
	})
}

// withMany puts very many objects, calls removal, which kills the primary amid their removal,
// starts that again, and removes the rest.
func (e *Env) withMany(ctx context.Context, each int, removal func(b *bulk, p pair)) {
	b := e.newBulk()
	defer b.end(e)
	p := e.ready(ctx)
	if e.load == nil {
		do(b.mount(ctx, "bulk", uint64(2*e.Objects)*bulkSize))
	}
	do(b.fill(ctx, removeGroups, each, bulkSize, client.PutConfig{}))
	e.did("put %d objects", removeGroups*each)
	removal(b, p)
	e.restart(ctx, p.primary)
	e.removeRest(ctx, b, each)
}

// removeGroups removes each group by a pattern, and kills the primary when a third of them is
// done. It returns what the clients know of each removal.
func (e *Env) removeGroups(ctx context.Context, b *bulk, p pair) []removal {
	removals := make([]removal, removeGroups)
	third := make(chan struct{})
	var done atomic.Int64
	g, removing := errgroup.WithContext(ctx)
	g.SetLimit(1 + removeWorkers)
	g.Go(func() error {
		select {
		case <-third:
			return e.killAmidRemovals(removing, p)
		case <-removing.Done():
			return removing.Err()
		}
	})
	for group := range removeGroups {
		g.Go(func() (err error) {
			removals[group], err = b.removeGroup(removing, group)
			if done.Add(1) == removeGroups/3 {
				close(third)
			}
			return err
		})
	}
	do(g.Wait())
	return removals
}

func (e *Env) killAmidRemovals(ctx context.Context, p pair) error {
	return script(func() {
		e.failover(ctx, p.primary, p.term, "SIGKILL amid removals of", func() error { p.primary.Kill(); return nil })
	})
}

// removeAll removes all objects, and kills the primary when a tenth of them is gone.
func (e *Env) removeAll(ctx context.Context, b *bulk, p pair) {
	g, removing := errgroup.WithContext(ctx)
	g.Go(func() error {
		return openOr(b.removeAll(removing))
	})
	g.Go(func() error {
		err := cluster.Poll(removing, 30*time.Second, "the removal has begun", func(ctx context.Context) (bool, error) {
			s, err := p.primary.Status(ctx)
			return err == nil && s.GetState().GetObjects() < uint64(e.Objects)*9/10, err
		})
		if err != nil {
			return err
		}
		return e.killAmidRemovals(removing, p)
	})
	do(g.Wait())
}

// openOr returns the error of a call, or nil for errors that a failover may cause.
func openOr(err error) error {
	switch errs.KindOf(err) {
	case errs.OK, errs.Unresolved, errs.Unavailable, errs.NotLeader:
		return nil
	default:
		return err
	}
}

// removeGroup removes a group by a pattern. If that is acknowledged, it puts some of the
// group's keys again.
func (b *bulk) removeGroup(ctx context.Context, group int) (removal, error) {
	var r removal
	if _, err := b.RemoveByRegex(ctx, fmt.Sprintf("^bulk/%03d/", group), client.Removal{Force: true}); err != nil {
		return r, openOr(err)
	}
	r.acknowledged = true
	keys := bulkKeys(group, 0, againPerGroup)
	failed, err := b.tryPut(ctx, keys, bulkSize, client.PutConfig{})
	if err != nil {
		return r, openOr(err)
	}
	for i, err := range failed {
		if err == nil {
			r.again = append(r.again, keys[i])
		}
	}
	return r, nil
}

// removedStay checks that objects whose removal was acknowledged are gone, and that those that
// were put again exist.
func (e *Env) removedStay(ctx context.Context, b *bulk, removals []removal, each int) {
	e.result.violate("X", 0)
	e.result.violate("D", 0)
	for group, r := range removals {
		if !r.acknowledged {
			continue
		}
		e.result.Counts["acknowledged_removals"]++
		// The keys that nobody tried to put again.
		e.demand(ctx, b, bulkKeys(group, againPerGroup, each), false, "X", "was removed, and is back after a failover")
		e.demand(ctx, b, r.again, true, "D", "was put after the removal of what was there, and is gone")
		e.result.Counts["put_again"] += int64(len(r.again))
	}
}

// demand counts a violation for each key that exists although exist is false, or the reverse.
func (e *Env) demand(ctx context.Context, b *bulk, keys []string, exist bool, letter, what string) {
	for i, is := range must(b.there(ctx, keys)) {
		if is != exist {
			e.result.violate(letter, 1, keys[i]+" "+what)
		}
	}
}

// removeRest repeats the removal of the bulk until it is acknowledged, and checks that nothing
// of the bulk is left. Without recorded clients it removes all objects.
func (e *Env) removeRest(ctx context.Context, b *bulk, each int) {
	until(ctx, 2*time.Minute, "a removal of all is acknowledged", func(ctx context.Context) (bool, error) {
		var err error
		if e.load == nil {
			_, err = b.RemoveAll(ctx, client.Removal{Force: true})
		} else {
			_, err = b.RemoveByRegex(ctx, "^bulk/", client.Removal{Force: true})
		}
		return err == nil, openOr(err)
	})
	for group := range removeGroups {
		e.demand(ctx, b, bulkKeys(group, 0, each), false, "X", "is there, although the removal of all was acknowledged")
	}
}

// hostDies ends, without an unmount, a client whose memory holds very many objects.
func hostDies(ctx context.Context, e *Env) {
	const name = "doomed"
	ttl := 10 * time.Second
	if e.Short {
		ttl = 5 * time.Second
	}
	// The drill measures how long the unmount delays other clients. So they must not delay
	// one another, nor wait for removals by pattern, which search a million keys.
	ep := episode{work: &work{rate: defaultRate / 5, exact: true}}
	// Only a failed allocation could start an eviction, and no allocation fails.
	ep.Args = []string{"--client_ttl=" + ttl.String(), "--eviction_high_watermark_ratio=1", "--eviction_ratio=0"}
	var b *bulk
	// The client fills its memory before the others lend theirs, so that none of their
	// objects is in it: each tenant's quota leaves room for the other.
	ep.before = func(ctx context.Context) {
		b = e.newBulk()
		do(b.fillSegment(ctx, name, uint64(e.Objects)*bulkSize, bulkSize))
		if e.tenants(ep.work) {
			rest := e.newBulkOf(judge.Tenant)
			defer rest.Close()
			do(rest.fillUp(ctx, bulkSize))
		}
	}
	defer func() {
		if b != nil {
			b.Close()
		}
	}()
	e.episode(ctx, ep, func(ctx context.Context) {
		p := e.working(ctx)
		at := must(e.cluster.Head(ctx))
		objects := b.put.Load()
		e.load.Mark("a host with many objects dies")
		dies := e.load.Now()
		b.Close()
		until(ctx, ttl+30*time.Second, "the dead host's memory is unmounted", func(ctx context.Context) (bool, error) {
			resp, err := p.primary.Admin.ListSegments(ctx, &pb.ListSegmentsRequest{Name: name})
			return err == nil && len(resp.GetSegments()) == 0, err
		})
		seen := e.load.Now()
		e.goneAtOnce(ctx, p.primary)
		e.load.answers(ctx, 100)
		// Count only the calls around the event; the many earlier ones would hide them.
		p99, usual := e.load.p99(seen-time.Second, e.load.Now()), e.load.p99(0, dies)
		events := must(deletionsSince(ctx, p.primary, uint64(at.Head.Seq), b.newest.Load()))
		e.did("a host with %d objects died; %d events delete them; p99 of other calls %v", objects, events, p99)
		e.result.check("one event", events == 1, "%d events delete %d objects", events, objects)
		e.result.check("others go on", p99 < 50*time.Millisecond, "p99 of other calls %v, at most 50 ms are promised; it was %v before", p99, usual)
		e.result.Rounds++
	})
}

// goneAtOnce checks that a primary that has unmounted the dead host's memory leads no reader
// to it.
func (e *Env) goneAtOnce(ctx context.Context, primary *cluster.Node) {
	keys := bulkKeys(0, 0, bulkBatch)
	resp, err := pb.NewObjectServiceClient(primary.Conn).BatchExistKey(ctx, &pb.BatchExistKeyRequest{Keys: keys})
	if err != nil {
		do(fmt.Errorf("asking for the objects of the dead host: %w", err))
	}
	for i, exists := range resp.GetExists() {
		if exists {
			e.result.violate("A", 1, keys[i]+" is served, in the memory of a host that died")
		}
	}
}

// mount lends memory that does not exist.
func (b *bulk) mount(ctx context.Context, name string, size uint64) error {
	return b.MountSegment(ctx, client.Segment{ID: uuid.New(), Name: name, Base: 1 << 50, Size: size, Endpoint: name + ":1", Protocol: "tcp"})
}

// fillSegment mounts memory that does not exist, and fills it with objects.
func (b *bulk) fillSegment(ctx context.Context, name string, size, object uint64) error {
	if err := b.mount(ctx, name, size); err != nil {
		return err
	}
	return b.fillUp(ctx, object)
}

// fillUp fills all memory with objects, as far as the quota of the client's tenant goes.
// That of the default tenant is nearly all that there is.
func (b *bulk) fillUp(ctx context.Context, object uint64) error {
	for n := 0; ; n += bulkBatch {
		failed, err := b.tryPut(ctx, bulkKeys(0, n, n+bulkBatch), object, client.PutConfig{HardPin: true})
		if err != nil {
			return err
		}
		for _, err := range failed {
			if errors.Is(err, errs.NoAvailableHandle) || errors.Is(err, errs.TenantQuotaExceeded) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	}
}

// deletionsSince counts the events in the journal after a sequence that unmount a segment or
// remove objects with ids up to newest.
func deletionsSince(ctx context.Context, n *cluster.Node, after, newest uint64) (count int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	stream, err := n.Admin.Events(ctx, &pb.EventsRequest{FromSequence: after + 1})
	if err != nil {
		return 0, err
	}
	for {
		event, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return count, nil
		case err != nil:
			return 0, fmt.Errorf("reading the journal: %w", err)
		case event.GetStream() != pb.EventStream_EVENT_STREAM_DELETE_EVENTS:
			continue
		}
		var deleted struct {
			Removals []struct {
				ID uint64 `json:"object_id,string"`
			} `json:"removals"`
		}
		if err := json.Unmarshal([]byte(event.GetJson()), &deleted); err != nil {
			return 0, fmt.Errorf("reading the journal: %s: %w", event.GetJson(), err)
		}
		if strings.Contains(event.GetType(), "UNMOUNT") || len(deleted.Removals) > 0 && deleted.Removals[0].ID <= newest {
			count++
		}
	}
}
