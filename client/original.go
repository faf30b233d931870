package client

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// What Mooncake's own client does (client_service.cpp, PingThreadMain).
const (
	originalPings   = 3                // that fail in a row before it looks for another master
	originalPause   = time.Second      // between two Pings, whatever came of the first
	originalTimeout = 30 * time.Second // of a Ping
)

// An original finds the primary as Mooncake's own client does, and no sooner. It
// takes the place of searches, and the watch in etcd is only read.
type original struct {
	*Client
	watch *leaderWatch // nil without etcd
}

// run pings until the context ends.
func (o *original) run(ctx context.Context) {
	tries := 0
	for failed := originalPings; ; {
		if o.pings(ctx) {
			failed = 0
		} else if failed++; failed >= originalPings && o.connect(ctx, tries) {
			failed = 0
		} else if failed >= originalPings {
			tries++
		}
		if o.pause(ctx, originalPause) != nil {
			return
		}
	}
}

// pings pings the primary that is known. It reports false if there is none, or
// it does not answer.
func (o *original) pings(ctx context.Context) bool {
	l := o.finder.current.Load()
	if l == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, originalTimeout)
	defer cancel()
	return o.send(ctx, l, opPing, &pb.PingRequest{ClientId: o.config.ClientID.String()}, new(pb.PingResponse)) == nil
}

// connect asks once whether the node that etcd names leads, or without etcd the
// next one of the addresses.
func (o *original) connect(ctx context.Context, try int) bool {
	address, ok := o.named(ctx, try)
	if !ok {
		return false
	}
	f := o.finder
	f.mu.Lock()
	c := f.candidateLocked(address)
	f.mu.Unlock()
	conn, err := f.connection(c)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, originalTimeout)
	defer cancel()
	resp := new(pb.ServiceReadyResponse)
	failed := o.view.attempt(ctx, conn, opServiceReady, &pb.ServiceReadyRequest{ContractRevision: pb.ContractRevision}, resp)
	return failed == nil && f.elect(c, conn, resp.GetHeader())
}

// named returns whom to ask.
func (o *original) named(ctx context.Context, try int) (address string, ok bool) {
	if o.watch == nil {
		return o.config.Addresses[try%len(o.config.Addresses)], true
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTimeout)
	defer cancel()
	resp, err := o.etcd.Get(ctx, o.watch.key)
	if err != nil || len(resp.Kvs) == 0 {
		return "", false
	}
	node, err := o.watch.parse(resp.Kvs[0])
	return node.Address, err == nil
}
