package service

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// Shares bound what all peers together may have, and what one of them may. A zero rule is
// no bound.
type Shares struct {
	Clients  share.Rule
	Segments share.Rule
	Mounted  share.Rule // see metadata.MountedMiB
	Names    share.Rule // of segments, see metadata.NameBytes
	KeyBytes share.Rule // see metadata.KeyBytes
}

// A Caller is who a call comes from.
type Caller struct {
	Peer string // what the caller has counts for it, see package share
	// Identified says that Peer is an identity. Such a caller ends no client of another
	// identity, and gets the memory of such a client only when that has expired.
	Identified bool
}

type callerKey struct{}

// From returns a context for calls of somebody.
func From(ctx context.Context, c Caller) context.Context {
	return &callerContext{ctx, c}
}

// A callerContext is a context with the caller, and so with the peer that the call counts for.
type callerContext struct {
	context.Context
	caller Caller
}

func (c *callerContext) Value(key any) any {
	switch key.(type) {
	case callerKey:
		return c.caller
	case share.PeerKey:
		return c.caller.Peer
	}
	return c.Context.Value(key)
}

func callerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// A refusedError says why a peer may have no new keys.
type refusedError struct {
	error
	// evictionHelps says that an eviction pass should make room: all peers together have
	// too many keys, or one has and the others have few, such as a fleet behind one
	// address. Nothing else would ever make room for that one.
	evictionHelps bool
}

func (e *refusedError) Unwrap() error { return e.error }

// places has n places. One peer has at most half of them, if there are two.
func places(n int) *share.Budget {
	return share.NewBudget(share.Rule{Total: int64(n), Peer: max(1, int64(n)/2), Few: int64(n)})
}

// admitKeys returns a refusedError if a peer may have no new keys.
func (m *Master) admitKeys(op string, p PutRequest, items []PutItem) error {
	bytes := int64(0)
	for i := range items {
		bytes += metadata.KeyBytes(items[i].Key)
	}
	all, own := m.Store.Use(p.Peer)
	text := m.Shares.KeyBytes.Refuse(p.Peer, all.KeyBytes, own.KeyBytes, bytes)
	if text == "" {
		return nil
	}
	alone := all.KeyBytes-own.KeyBytes <= m.Shares.KeyBytes.Few
	return &refusedError{errs.New(errs.NoAvailableHandle, op, "%s", text), alone || own.KeyBytes+bytes <= m.Shares.KeyBytes.Peer}
}

// admitSegments refuses more segments to a peer that has too many, too much memory in them, or
// too long names.
func (m *Master) admitSegments(ctx context.Context, changes []*metadata.Mount) error {
	peer := callerOf(ctx).Peer
	var mounted, names, fresh int64
	for _, e := range changes {
		mounted += metadata.MountedMiB(e.Spec)
		names += metadata.NameBytes(e.Spec)
		if len(e.Replaces) == 0 && !m.Store.HasClaims(e.Spec.Endpoint) {
			fresh++
		}
	}
	all, own := m.Store.Use(peer)
	text := cmp.Or(
		m.Shares.Segments.Refuse(peer, all.Segments, own.Segments, int64(len(changes))),
		m.Shares.Mounted.Refuse(peer, all.Mounted, own.Mounted, mounted),
		m.Shares.Names.Refuse(peer, all.Names, own.Names, names),
		m.admitEndpoints(peer, all, own, fresh))
	if text != "" {
		return errs.New(errs.Unavailable, "MountSegment", "%s", text)
	}
	return nil
}

// admitEndpoints says why a peer may mount nothing at so many endpoints without claims; nothing
// if it may. What is unmounted leaves claims, so a peer that mounts and unmounts at one endpoint
// after the other would fill the memory: both count together. Who comes back to its own
// endpoint is never refused for them.
func (m *Master) admitEndpoints(peer string, all, own metadata.Use, fresh int64) string {
	if fresh == 0 {
		return ""
	}
	rule := m.Shares.Segments
	rule.What = "segments, with the endpoints where unmounted memory may still be in use,"
	text := rule.Refuse(peer, all.Segments+all.Claimed, own.Segments+own.Claimed, fresh)
	if text == "" {
		return ""
	}
	return text + "; or mount at one of these endpoints, or again when leases and reservations there have ended"
}

// An occupiedError refuses a mount where a client lends memory that is alive.
type occupiedError struct {
	error
	left time.Duration // until the owner counts as dead, if it stays silent
}

func (e *occupiedError) Unwrap() error { return e.error }

// checkOwners returns an occupiedError if one of some segments lies where a client that is
// alive lends memory, which a mount would take away. The owner counts as dead after a silence
// of displacedTTL, since a process that starts in the place of a dead one should not wait
// long. For a caller with another identity it counts as dead only when it has expired.
func (m *Master) checkOwners(ctx context.Context, specs []segment.Spec) error {
	for _, spec := range specs {
		for _, owner := range m.Store.OwnersOf(spec) {
			if left, ttl := m.Liveness.left(owner, callerOf(ctx)); left > 0 {
				return &occupiedError{errs.New(errs.Unavailable, "MountSegment",
					"client %v has mounted memory of segment %v at %.64q, and is alive; stop that client, or mount under its id; what it has is free when it has been silent for %v",
					owner, spec.ID, spec.Endpoint, ttl), left}
			}
		}
	}
	return nil
}

// clockMargin is by how much the clock of a sleep may differ from that of Liveness.
const clockMargin = 10 * time.Millisecond

// mountAlone runs f, which mounts segments, while no others are mounted. If a client that
// is alive lends the memory, f runs again when that client would count as dead, unless the
// caller's time is up by then: it would never learn why.
func (m *Master) mountAlone(ctx context.Context, f func(context.Context) error) error {
	err := m.withSegments(ctx, f)
	var occupied *occupiedError
	if !errors.As(err, &occupied) {
		return err
	}
	wait := occupied.left + clockMargin
	if end, ok := ctx.Deadline(); ok && end.Before(clock.Deadline(wait)) || clock.Sleep(ctx, wait) != nil {
		return err
	}
	return m.withSegments(ctx, f)
}
