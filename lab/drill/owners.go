package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/clock"
)

// The drills about owners of memory and of SSDs.

// ownerTTL is how long an owner may be silent. An owner whose endpoint another process has
// taken expires sooner.
const ownerTTL = 6 * time.Second

// silentOwner unmounts a host's memory while readers and writers use it, and lends it again
// at once. Nobody else may get the ranges that they still use.
func silentOwner(ctx context.Context, e *Env) {
	if !e.Short || e.Break != "" {
		ep := episode{}
		ep.Args = []string{"--client_ttl=" + ownerTTL.String()}
		e.episode(ctx, ep, e.manySilent)
	}
	ep := episode{work: &work{memory: 16 << 20}}
	ep.LeaseTTL = 2 * ownerTTL // so that readers are at work when the memory is back
	ep.Args = []string{"--client_ttl=" + ownerTTL.String(), "--eviction_ratio=0"}
	ways := []struct {
		how  string
		away func(ctx context.Context, host int)
	}{
		{"took its memory back", func(ctx context.Context, host int) { do(e.load.UnmountHost(ctx, host)) }},
		{"lent most of its memory anew", func(ctx context.Context, host int) { do(e.load.MountHost(ctx, host, 1<<12)) }},
		{"was silent", func(ctx context.Context, host int) {
			e.load.KillHost(host)
			until(ctx, ownerTTL+time.Minute, "the silent host's memory is unmounted", func(ctx context.Context) (bool, error) {
				list, err := e.segments(ctx)
				return err == nil && !list[e.load.HostName(host)], err
			})
		}},
	}
	e.rounds(ctx, ep, func(ctx context.Context) {
		e.working(ctx)
		host := e.rng.IntN(4)
		way := ways[e.result.Rounds%len(ways)]
		way.away(ctx, host)
		do(e.load.MountHost(ctx, host, 0))
		e.load.answers(ctx, 2*answersPerWait)
		e.did("host %d %s, and lent the same memory again", host, way.how)
	})
}

func (e *Env) segments(ctx context.Context) (map[string]bool, error) {
	p, _ := e.primary(ctx, 0)
	resp, err := p.Admin.ListSegments(ctx, &pb.ListSegmentsRequest{})
	names := make(map[string]bool)
	for _, s := range resp.GetSegments() {
		names[s.GetSegment().GetName()] = true
	}
	return names, err
}

// manySilent ends owners without an unmount. An owner whose endpoint another process has taken
// must expire first. Of many owners that end at once, only some may expire.
func (e *Env) manySilent(ctx context.Context) {
	reader := e.newBulk() // without other calls the primary assumes that it is cut off
	defer reader.Close()
	var owners []*bulk
	lend := func(name, endpoint string, base uint64) *bulk {
		b := e.newBulk()
		owners = append(owners, b)
		do(b.MountSegment(ctx, client.Segment{ID: uuid.New(), Name: name, Base: base, Size: 64 << 20, Endpoint: endpoint, Protocol: "tcp"}))
		return b
	}
	defer func() {
		for _, b := range owners {
			b.Close()
		}
	}()
	var many []string
	for i := range 5 {
		many = append(many, fmt.Sprint("many-", i))
		lend(many[i], many[i]+":1", 1<<40)
	}
	replaced, silent := lend("replaced", "restarted:1", 1<<40), lend("silent", "silent:1", 1<<40)
	replaced.Close()
	silent.Close()
	lend("restarted", "restarted:1", 1<<41)
	left := e.untilUnmounted(ctx, reader, "replaced", "silent")
	e.result.check("a replaced process goes first", !left["replaced"] && left["silent"],
		"two owners fell silent, another process took the endpoint of the first: mounted still are %v", left)
	e.untilUnmounted(ctx, reader, "silent")
	for _, b := range owners[:len(many)] {
		b.Close()
	}
	e.untilUnmounted(ctx, reader, many...)
	do(clock.Sleep(ctx, ownerTTL/3)) // in that time the others would have expired as well
	left = must(e.segments(ctx))
	kept := slices.DeleteFunc(slices.Clone(many), func(name string) bool { return !left[name] })
	e.result.check("few expire at once", len(kept) > len(many)/2, "%d owners fell silent at once, and %d of them are left", len(many), len(kept))
	e.did("of %d silent owners %d were kept", len(many), len(kept))
	e.compare(ctx)
}

// untilUnmounted waits until one of some segments is unmounted, and returns those that are
// mounted then. Meanwhile it reads, so that the primary is not idle.
func (e *Env) untilUnmounted(ctx context.Context, reader *bulk, any ...string) (left map[string]bool) {
	until(ctx, ownerTTL+time.Minute, fmt.Sprintf("one of %v is unmounted", any), func(ctx context.Context) (bool, error) {
		_, read := reader.ExistKey(ctx, "nothing")
		var err error
		left, err = e.segments(ctx)
		return slices.ContainsFunc(any, func(name string) bool { return !left[name] }), errors.Join(read, err)
	})
	return left
}
