// Package kvpublisher publishes the changes of keys as Mooncake's master does: over
// ZeroMQ, in batches encoded with MessagePack, for routers that place requests by cache.
//
// Only the node that serves publishes. A batch has a number; a gap between two means
// that a subscriber may have missed something. The numbers of a later term are above
// those of an earlier one. A new primary publishes again what its predecessor may not have
// published. If it does not know enough for that, it begins with an event that clears
// everything, and publishes all keys.
package kvpublisher

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/internal/service/kvevents"
	"github.com/understudy-store/understudy/metadata"
)

const (
	// maxEvents is how many events a batch has at most, as Mooncake's.
	maxEvents = 64
	// enoughCommits are more than a primary leaves unpublished when it dies.
	enoughCommits = 256
	// termBits are the low bits of a number; above them stands the term.
	termBits = 32
)

// Config is what a Publisher works with.
type Config struct {
	Listener  net.Listener
	Feed      *kvevents.Feed
	Format    Format
	Tenants   func() []string       // that may have had keys, besides the default one
	Allow     func(netip.Addr) bool // who may subscribe
	Log       zerolog.Logger
	Wall      func() time.Time
	HoldBytes int // batches held for a subscriber that does not read; 0 for 32 MiB
}

// A Publisher publishes to whoever connects.
type Publisher struct {
	Config
	subscribers subscribers
	refused     zerolog.Logger // for refusals, of which there may be any number

	batches, events, dropped, unparsed atomic.Uint64
}

// A Status is upstream's body of /kv_events/status.
type Status struct {
	Enabled  bool   `json:"enabled"`
	Batches  uint64 `json:"published_batches"`
	Events   uint64 `json:"published_events"`
	Dropped  uint64 `json:"dropped_events"`
	Unparsed uint64 `json:"skipped_unparsed_keys"`
}

// New returns a publisher; Run takes its connections.
func New(c Config) *Publisher {
	c.HoldBytes = cmp.Or(c.HoldBytes, 32<<20)
	return &Publisher{
		Config:  c,
		refused: c.Log.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Minute}),
		subscribers: subscribers{
			places: share.NewBudget(share.Rule{Total: maxSubscribers, Peer: maxSubscribers / 2, Few: maxSubscribers}),
			all:    make(map[*subscriber]bool),
		},
	}
}

// Status returns the counts since the program started; a nil Publisher is not enabled.
func (p *Publisher) Status() Status {
	if p == nil {
		return Status{}
	}
	return Status{true, p.batches.Load(), p.events.Load(), p.dropped.Load(), p.unparsed.Load()}
}

// Publish publishes in a term, until the context ends. When it falls behind so far that
// events are lost, it begins anew, with all keys. A nil Publisher publishes nothing.
func (p *Publisher) Publish(ctx context.Context, term metadata.Term) error {
	if p == nil {
		return nil
	}
	t := &termOf{Publisher: p, number: uint64(term) << termBits, event: uint64(term) << termBits}
	sub := p.Feed.SubscribeKept(enoughCommits)
	defer func() { sub.Close() }()
	for {
		batch, err := sub.Next(ctx, time.Minute)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errs.KindOf(err) == errs.Unavailable:
			p.Log.Warn().Err(err).Msg("KV events were lost before they were published; all keys are published again")
			sub.Close()
			sub = p.Feed.Subscribe(kvevents.Checkpoint{})
			continue
		case err != nil:
			return err
		}
		if batch.Resync {
			t.clear()
		}
		t.publish(batch.Events)
	}
}

// A termOf publishes in one term.
type termOf struct {
	*Publisher
	number, event uint64 // of the last batch and event
	// tenants are those whose keys were cleared since clear was last called; nil before
	// the first time.
	tenants map[string]bool
}

// clear publishes that nothing is stored, with one event for each tenant. For a tenant
// that appears later, publish does that before its first key.
func (t *termOf) clear() {
	t.tenants = make(map[string]bool)
	var list []change
	for _, tenant := range append([]string{metadata.DefaultTenant}, t.Tenants()...) {
		if !t.tenants[tenant] {
			t.tenants[tenant] = true
			list = append(list, change{kind: cleared, of: &metadata.MediaChange{Tenant: tenant}})
		}
	}
	for batch := range slices.Chunk(list, maxEvents) {
		t.send(batch)
	}
}

// publish publishes changes: one event for each medium that came or went.
func (t *termOf) publish(changes []metadata.MediaChange) {
	batch := make([]change, 0, maxEvents)
	for i := range changes {
		if of := &changes[i]; t.tenants != nil && !t.tenants[of.Tenant] {
			t.tenants[of.Tenant] = true
			batch = append(batch, change{kind: cleared, of: of})
		}
		batch = appendChanges(batch, &changes[i])
		if len(batch) > maxEvents-mostChanges || i == len(changes)-1 {
			t.send(batch)
			batch = batch[:0]
		}
	}
}

func (t *termOf) send(batch []change) {
	for i := range batch {
		if c := &batch[i]; c.kind != cleared {
			hash, ok := hashOf(c.of.Key)
			c.hash, c.hashed = hash, ok
			if !ok {
				t.unparsed.Add(1)
			}
		}
	}
	if !t.Format.ObjectKey { // without the key, an event without a hash names no object
		batch = slices.DeleteFunc(batch, func(c change) bool { return c.kind != cleared && !c.hashed })
	}
	if len(batch) == 0 {
		return
	}
	t.number++
	payload := t.Format.encode(batch, t.event+1, t.Wall().UnixMilli())
	t.event += uint64(len(batch))
	t.batches.Add(1)
	t.events.Add(uint64(len(batch)))
	if slow := t.subscribers.send(frames(t.number, payload), t.HoldBytes); slow > 0 {
		t.dropped.Add(uint64(slow * len(batch)))
		t.Log.Warn().Int("subscribers", slow).Msg("subscribers of KV events do not keep up; they were disconnected, and see a gap when they come back")
	}
}
