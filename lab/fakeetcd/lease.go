package fakeetcd

import (
	"context"
	"maps"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// expiryTick is how often etcd looks for leases that have run out: a key goes
// up to so much later than its TTL (etcd's lessor).
const expiryTick = 500 * time.Millisecond

// maxLeaseTTL is the longest TTL that etcd grants, in seconds.
const maxLeaseTTL = 9_000_000_000

// A lease holds keys until it runs out.
type lease struct {
	id       int64
	ttl      time.Duration
	deadline time.Duration // by the server's clock
	keys     map[string]bool
	gone     chan struct{} // closed when it is revoked
}

// attach puts a key on its lease, if it has one that is there. Needs mu.
func (s *Server) attach(kv *mvccpb.KeyValue) {
	if l := s.leases[kv.Lease]; l != nil {
		l.keys[string(kv.Key)] = true
	}
}

// detach takes a key that is about to change off its lease. Needs mu.
func (s *Server) detach(kv *mvccpb.KeyValue) {
	if l := s.leases[kv.Lease]; l != nil {
		delete(l.keys, string(kv.Key))
	}
}

// revoke ends a lease and deletes its keys, all at one revision. Needs mu.
func (s *Server) revoke(l *lease) {
	delete(s.leases, l.id)
	close(l.gone)
	w := s.begin()
	for _, key := range slices.Sorted(maps.Keys(l.keys)) {
		w.deleteRange(&pb.DeleteRangeRequest{Key: []byte(key)})
	}
	w.end()
}

// expire revokes the leases that have run out, until the context ends.
func (s *Server) expire(ctx context.Context) {
	tick := time.NewTicker(expiryTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		for _, id := range slices.Sorted(maps.Keys(s.leases)) {
			if l := s.leases[id]; !s.down && s.clock() >= l.deadline {
				s.revoke(l)
			}
		}
		s.mu.Unlock()
	}
}

// extendAll gives every lease its full TTL again, as an etcd does that has come
// back. Needs mu.
func (s *Server) extendAll() {
	for _, l := range s.leases {
		l.deadline = s.clock() + l.ttl
	}
}

// grant grants a lease of at least the server's shortest TTL.
func (s *Server) grant(r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	switch {
	case s.full:
		return nil, rpctypes.ErrGRPCNoSpace
	case r.TTL > maxLeaseTTL:
		return nil, rpctypes.ErrGRPCLeaseTTLTooLarge
	case s.leases[r.ID] != nil:
		return nil, rpctypes.ErrGRPCLeaseExist
	}
	id := r.ID
	if id == 0 {
		s.lastLease++
		id = s.lastLease
	}
	ttl := max(time.Duration(r.TTL)*time.Second, s.opts.MinLeaseTTL)
	s.leases[id] = &lease{id: id, ttl: ttl, deadline: s.clock() + ttl, keys: make(map[string]bool), gone: make(chan struct{})}
	return &pb.LeaseGrantResponse{Header: s.header(), ID: id, TTL: int64(ttl / time.Second)}, nil
}

// revokeLease ends a lease.
func (s *Server) revokeLease(r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	l := s.leases[r.ID]
	if l == nil {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	s.revoke(l)
	return &pb.LeaseRevokeResponse{Header: s.header()}, nil
}

// timeToLive tells what is left of a lease; a TTL of -1 says that there is
// none.
func (s *Server) timeToLive(r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	l := s.leases[r.ID]
	if l == nil {
		return &pb.LeaseTimeToLiveResponse{Header: s.header(), ID: r.ID, TTL: -1}, nil
	}
	resp := &pb.LeaseTimeToLiveResponse{
		Header: s.header(), ID: r.ID, TTL: int64((l.deadline - s.clock()) / time.Second), GrantedTTL: int64(l.ttl / time.Second),
	}
	if r.Keys {
		for _, key := range slices.Sorted(maps.Keys(l.keys)) {
			resp.Keys = append(resp.Keys, []byte(key))
		}
	}
	return resp, nil
}

// keepAlive begins a lease anew. One that is not there has a TTL of 0; for one
// that has run out etcd says so when it is revoked, and nothing before.
func (s *Server) keepAlive(r *pb.LeaseKeepAliveRequest) answer {
	resp := &pb.LeaseKeepAliveResponse{Header: s.header(), ID: r.ID}
	l := s.leases[r.ID]
	switch {
	case l == nil:
	case s.clock() >= l.deadline:
		return answer{message: resp, after: l.gone}
	default:
		l.deadline = s.clock() + l.ttl
		resp.TTL = int64(l.ttl / time.Second)
	}
	return answer{message: resp}
}
