package service

import (
	"cmp"
	"context"
	"net"
	"slices"
	"sync/atomic"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// MountSegment lends memory to the store. It is no error to mount a segment again exactly
// as it is mounted. Errors: InvalidParams, SegmentExists; Unresolved if it is mounted,
// and another node may be the primary by now.
func (m *Master) MountSegment(ctx context.Context, spec segment.Spec) error {
	if err := m.Fence(ctx); err != nil {
		return err
	}
	err := m.mountAlone(ctx, func(ctx context.Context) error {
		switch closed, drains := m.Store.Closed(spec.ID); {
		case drains:
			return errs.New(errs.Unavailable, "MountSegment", "segment %v is drained, or being drained; unmount it first, or cancel the drain job while it runs", spec.ID)
		case closed:
			return errs.New(errs.Unavailable, "MountSegment", "segment %v takes no new objects and is unmounted soon; mount it again then", spec.ID)
		}
		if err := m.mount(ctx, []segment.Spec{spec}); err != nil {
			return err
		}
		return mounted(m.Liveness.Join(callerOf(ctx), spec.Client))
	})
	return m.Counters.done(OpMountSegment, err)
}

// ReMountSegment mounts all of a client's segments and marks the client alive;
// after it, Ping answers OK. Segments it mounted before and does not name stay
// as they are. With more than maxTurn segments, some may be mounted when it fails or its
// caller goes; a repeated call goes on with the others.
func (m *Master) ReMountSegment(ctx context.Context, client segment.ClientID, specs []segment.Spec) error {
	if err := m.Fence(ctx); err != nil {
		return err
	}
	if len(specs) > MaxReMounts {
		return m.Counters.done(OpReMountSegment, errs.New(errs.InvalidParams, "ReMountSegment",
			"the client has %d segments, at most %d are possible; mount larger ones", len(specs), MaxReMounts))
	}
	return m.Counters.done(OpReMountSegment, m.remount(ctx, client, slices.Clone(specs)))
}

// maxTurn is how many segments a client mounts before other callers have their turn: those
// of 64 commits.
const maxTurn = 64 * metadata.MaxMounts

// remount mounts a client's segments, turn by turn. Each turn is decided against what is
// applied then, as if it were a call of its own. It ends when all of them are mounted at the
// same time: others may have unmounted some in between, for example because the client was
// silent.
func (m *Master) remount(ctx context.Context, client segment.ClientID, specs []segment.Spec) error {
	left, most := specs, 3+3*len(specs)/maxTurn
	for turn := 1; ; turn++ {
		err := m.mountAlone(ctx, func(ctx context.Context) error {
			if turn == 1 { // so that none is mounted that a later turn would refuse
				if err := m.checkMounts(ctx, specs); err != nil {
					return err
				}
			}
			n := min(len(left), maxTurn)
			if err := m.mount(ctx, left[:n]); err != nil {
				return err
			}
			if left = left[n:]; len(left) == 0 && turn > 1 {
				left = m.Store.NotMounted(specs)
			}
			if len(left) > 0 {
				return nil
			}
			return m.Liveness.Add(callerOf(ctx), client)
		})
		switch kind := errs.KindOf(err); {
		case turn > 1 && (kind == errs.Unavailable || kind == errs.NotLeader):
			return mounted(err)
		case err != nil || len(left) == 0: // if it failed, left may be changed still
			return err
		case turn == most:
			return errs.New(errs.Unresolved, "ReMountSegment",
				"after %d turns %d of %d segments are not mounted, since other calls unmounted them meanwhile; stop those, and repeat the call", turn, len(left), len(specs))
		}
	}
}

// checkMounts returns why some segments may not be mounted, as far as that is known before
// the first of them is mounted.
func (m *Master) checkMounts(ctx context.Context, specs []segment.Spec) error {
	for _, spec := range specs {
		if err := checkNames(spec); err != nil {
			return err
		}
	}
	return m.checkOwners(ctx, specs)
}

// mount mounts segments in order, many with one commit. It does not make their owner known:
// the caller does that when no segment is missing, since until then a Ping must say so.
func (m *Master) mount(ctx context.Context, specs []segment.Spec) error {
	if err := m.checkMounts(ctx, specs); err != nil {
		return err
	}
	if err := m.unmountEarlier(ctx, specs); err != nil {
		return err
	}
	all := specs
	var fresh []segment.Spec // what was not mounted already
	defer func() { m.displace(callerOf(ctx), fresh) }()
	for len(specs) > 0 {
		changes, n, err := m.Store.PrepareMounts(specs)
		if err == nil {
			err = m.mountSome(ctx, changes)
		}
		kind := errs.KindOf(err)
		switch some := len(specs) < len(all); {
		case some && (kind == errs.Unavailable || kind == errs.NotLeader):
			return mounted(err)
		case err != nil:
			return err
		}
		specs = specs[n:]
		for _, e := range changes {
			fresh = append(fresh, e.Spec)
		}
	}
	return mounted(m.Fence(ctx))
}

// mounted returns the error of a call that failed after it had mounted memory: it must not
// say that nothing was changed.
func mounted(err error) error { return errs.Wrap(errs.Unresolved, "MountSegment", err) }

// unmountEarlier unmounts what earlier processes of the segments' owners have
// mounted: that memory is gone.
func (m *Master) unmountEarlier(ctx context.Context, specs []segment.Spec) error {
	type process struct {
		client   segment.ClientID
		instance uint64
	}
	seen := make(map[process]bool, 1)
	for _, s := range specs {
		p := process{s.Client, s.Instance}
		if seen[p] {
			continue
		}
		seen[p] = true
		for part := range slices.Chunk(m.Store.EarlierMounts(p.client, p.instance), maxUnmounts) {
			lenders := m.Store.LendersOf(part)
			err := m.unmount(ctx, part...)
			m.displaced(ctx, s.Client, lenders, err)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// displaced reports those who have lent what a mount of a client took away with this error.
func (m *Master) displaced(ctx context.Context, client segment.ClientID, lenders []metadata.Lender, err error) {
	if m.Displaced == nil || err != nil && errs.KindOf(err) != errs.Unresolved {
		return
	}
	by := callerOf(ctx)
	for _, l := range lenders {
		if l.Client != client || l.Peer != "" && l.Peer != by.Peer {
			m.Displaced(by, client, l)
		}
	}
}

// displace has other clients at the endpoints of new segments expire soon if they are
// silent: an endpoint belongs to one process. It looks each endpoint up once: many segments
// may be at one, and to find its owners takes time in proportion.
func (m *Master) displace(by Caller, specs []segment.Spec) {
	seen := map[string]bool{"": true}
	for _, s := range specs {
		if seen[s.Endpoint] {
			continue
		}
		seen[s.Endpoint] = true
		for _, owner := range m.Store.OwnersAt(s.Endpoint) {
			if owner != s.Client {
				m.Liveness.Displace(owner, by)
			}
		}
	}
}

// mountSome commits mounts that do not touch each other.
func (m *Master) mountSome(ctx context.Context, changes []*metadata.Mount) error {
	if err := m.admitSegments(ctx, changes); err != nil {
		return err
	}
	defer m.claim(changes)()
	for _, e := range changes {
		e.Peer = callerOf(ctx).Peer
		// Before the mount, so that the segment goes with its owner even if the
		// caller never learns that it was mounted.
		if err := m.Liveness.Watch(callerOf(ctx), e.Spec.Client); err != nil {
			return err
		}
	}
	lenders := make([][]metadata.Lender, len(changes))
	for i, e := range changes {
		if len(e.Replaces) > 0 {
			lenders[i] = m.Store.LendersOf(e.Replaces)
		}
	}
	var failed error
	some := false // some are mounted: there may be more than one commit
	for i, o := range m.commit(ctx, len(changes), mountBytes(changes), func(i int, _ metadata.Time) (metadata.Change, <-chan struct{}, error) {
		return changes[i], nil, nil
	}) {
		some, failed = some || o.err == nil, cmp.Or(failed, o.err)
		m.displaced(ctx, changes[i].Spec.Client, lenders[i], o.err)
	}
	if kind := errs.KindOf(failed); some && (kind == errs.Unavailable || kind == errs.NotLeader) {
		return mounted(failed)
	}
	return failed
}

// claim adds to mounts the ranges with live leases in the segments that they replace, which
// one walk over all objects finds. Until end is called, readers of those segments wait.
func (m *Master) claim(changes []*metadata.Mount) (end func()) {
	var replaced []segment.Number
	for _, e := range changes {
		replaced = append(replaced, e.Replaces...)
	}
	if len(replaced) == 0 {
		return func() {}
	}
	claims, end := m.Store.BeginUnmount(replaced, m.Now())
	for _, e := range changes {
		e.Claims = slices.DeleteFunc(slices.Clone(claims), func(c metadata.Claim) bool { return !slices.Contains(e.Replaces, c.Segment) })
	}
	return end
}

// mountBytes returns about how long the largest of some mounts is in the journal.
func mountBytes(changes []*metadata.Mount) int {
	longest := 0
	for _, e := range changes {
		s := e.Spec
		longest = max(longest, len(s.Name)+len(s.Endpoint)+len(s.Protocol)+len(s.HostID)+5*len(e.Replaces)+16*len(e.Claims))
	}
	return 128 + longest
}

func checkNames(spec segment.Spec) error {
	for what, name := range map[string]string{
		"name": spec.Name, "endpoint": spec.Endpoint, "protocol": spec.Protocol, "host id": spec.HostID,
	} {
		if len(name) > metadata.MaxNameBytes {
			return errs.New(errs.InvalidParams, "MountSegment", "the segment's %s has %d bytes, at most %d are possible", what, len(name), metadata.MaxNameBytes)
		}
	}
	return nil
}

// An Unmount says who asks for a segment to be unmounted, and notes what came of it. It is
// for one call of UnmountSegment.
type Unmount struct {
	Client  segment.ClientID
	OwnOnly bool // refuse a segment of another client

	there bool                      // it was mounted before the call
	found atomic.Pointer[TakenAway] // what it was, as soon as it is about to be unmounted
}

// TakenAway is what an unmount took.
type TakenAway struct {
	Owner segment.ClientID
	Bytes uint64 // of objects on the segment, those that were being written among them
}

// Taken returns what was unmounted, or may have been, nil for nothing. foreign says that it was
// another client's.
func (u *Unmount) Taken() (taken *TakenAway, foreign bool) {
	taken = u.found.Load()
	return taken, taken != nil && taken.Owner != u.Client && taken.Owner != segment.ClientID{}
}

// Changed reports whether a call with this error unmounted the segment, or may have. One that
// gives up early may still be about to look whether it is mounted.
func (u *Unmount) Changed(err error) bool {
	found := u.found.Load() != nil
	return found && err == nil || (found || u.there) && errs.KindOf(err) == errs.Unresolved
}

// UnmountSegment takes a segment away with all replicas on it, whoever owns it, unless by
// says otherwise: then it fails with IllegalClient. An unknown segment is no error. by may
// be nil.
func (m *Master) UnmountSegment(ctx context.Context, id segment.ID, by *Unmount) error {
	if err := m.Fence(ctx); err != nil {
		return err
	}
	by = cmp.Or(by, new(Unmount))
	_, _, by.there = m.Store.OwnerOf(id)
	err := m.withSegments(ctx, func(ctx context.Context) error {
		owner, used, ok := m.Store.OwnerOf(id)
		if !ok {
			return m.fenced(ctx, nil)
		}
		if by.OwnOnly && owner != by.Client {
			return m.fenced(ctx, errs.New(errs.IllegalClient, "UnmountSegment", "segment %v is not one of client %v; an operator may unmount it", id, by.Client))
		}
		by.found.Store(&TakenAway{owner, used})
		number, _ := m.Store.FindSegment(id) // as it was: others wait
		return m.unmount(ctx, number)
	})
	return m.Counters.done(OpUnmountSegment, err)
}

// ExpireClient unmounts all segments of a client that has gone silent, and its SSD,
// unless the client is back before its turn comes. It returns how many segments it
// unmounted.
func (m *Master) ExpireClient(ctx context.Context, client segment.ClientID, back func() bool) (int, error) {
	var n atomic.Int64
	err := m.withSegments(ctx, func(ctx context.Context) error {
		if back() {
			return nil
		}
		for part := range slices.Chunk(m.Store.SegmentsOf(client), maxUnmounts) {
			if err := m.unmount(ctx, part...); err != nil {
				return err
			}
			n.Add(int64(len(part)))
		}
		return m.unmountLocalDisk(ctx, client)
	})
	return int(n.Load()), err
}

// maxUnmounts bounds the segments of one event, so that it fits
// metadata.MaxChangeBytes.
const maxUnmounts = 1024

func (m *Master) unmount(ctx context.Context, numbers ...segment.Number) error {
	leases, end := m.Store.BeginUnmount(numbers, m.Now())
	defer end()
	e := &deleteevents.Event{Type: deleteevents.UnmountSegment, Segments: numbers, Claims: leases}
	err := commitOne(ctx, m, 32+5*len(numbers)+16*len(leases), func() (*deleteevents.Event, error) { return e, nil })
	if errs.KindOf(err) == errs.SegmentNotFound {
		return nil
	}
	return err
}

// withSegments runs f while no other segment is mounted or unmounted: which
// memory a mount takes over is decided against what is applied. So f runs to its end even
// if the caller has gone, and must not touch what belongs to the caller then. It ends with
// the term at the latest. Callers that wait take turns by peer.
func (m *Master) withSegments(ctx context.Context, f func(context.Context) error) error {
	return alone(ctx, "segments", m.segments, f)
}

// alone runs f while nobody else holds a place.
func alone(ctx context.Context, what string, place *share.Budget, f func(context.Context) error) error {
	peer := callerOf(ctx).Peer
	if err := place.Wait(ctx, peer, 1); err != nil {
		return &errs.Error{
			Kind: errs.Unavailable, Op: what, Err: err,
			Detail: "another change of " + what + " is being written; nothing was changed, try again",
		}
	}
	done := make(chan error, 1)
	go func() {
		defer place.GiveBack(peer, 1)
		done <- f(context.WithoutCancel(ctx))
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return &errs.Error{
			Kind: errs.Unresolved, Op: what, Err: ctx.Err(),
			Detail: "the change is still being written; repeat the call to learn the outcome",
		}
	}
}

// Ping keeps a client alive. It reports false if the client is not known here:
// it must remount its segments.
func (m *Master) Ping(ctx context.Context, client segment.ClientID) (bool, error) {
	if err := m.Fence(ctx); err != nil {
		return false, err
	}
	known, early := m.Liveness.ping(client)
	if peer := callerOf(ctx).Peer; early && peer != "" && m.Store.TryAttribute(client, peer) { // or at the next ping
		m.Liveness.attribute(client, peer)
	}
	return known, m.Counters.done(OpPing, m.Fence(ctx))
}

// BatchQueryIp returns the addresses at which clients' segments are reached,
// without ports. Clients without segments are left out.
func (m *Master) BatchQueryIp(ctx context.Context, clients []segment.ClientID) (map[segment.ClientID][]string, error) {
	if err := m.begin(ctx, "BatchQueryIp", len(clients)); err != nil {
		return nil, m.Counters.done(OpBatchQueryIP, err)
	}
	ips, looked := make(map[segment.ClientID][]string), make(map[segment.ClientID]bool, len(clients))
	for _, client := range clients {
		if looked[client] {
			continue
		}
		looked[client] = true
		list, err := m.addresses(ctx, client)
		if err != nil {
			return nil, m.Counters.done(OpBatchQueryIP, err)
		}
		if len(list) > 0 {
			ips[client] = list
		}
	}
	return ips, m.Counters.doneSome(OpBatchQueryIP, len(clients), len(clients)-len(ips), m.Fence(ctx))
}

// addresses returns the hosts of a client's segments, each once, in the order of their
// mounts.
func (m *Master) addresses(ctx context.Context, client segment.ClientID) (list []string, err error) {
	endpoints, hosts := make(map[string]bool), make(map[string]bool)
	for s := range m.Store.SegmentsOwnedBy(client) {
		if endpoints[s.Endpoint] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, errs.Wrap(errs.Unavailable, "BatchQueryIp", err)
		}
		endpoints[s.Endpoint] = true
		if ip := host(s.Endpoint); ip != "" && !hosts[ip] {
			hosts[ip] = true
			list = append(list, ip)
		}
	}
	return list, nil
}

// host returns an endpoint's host; an IPv6 address in its shortest form,
// without brackets.
func host(endpoint string) string {
	h, _, err := net.SplitHostPort(endpoint)
	if err != nil {
		h = endpoint
	}
	if ip := net.ParseIP(h); ip != nil {
		return ip.String()
	}
	return h
}
