package app

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/promote"
)

const (
	// lookEvery is how often a primary reads in etcd which nodes are registered.
	lookEvery = 2 * time.Second
	// lookupTimeout bounds how long one of their names may take to be resolved.
	lookupTimeout = time.Second
)

// knownNodes are the nodes that stood in etcd a moment ago: by their ids, the hosts that
// their addresses are of. A node that does not serve knows none.
type knownNodes struct {
	hosts atomic.Pointer[map[string][]string]
}

// has reports whether a node of an id is registered at a host.
func (r *knownNodes) has(id, host string) bool {
	hosts := r.hosts.Load()
	return hosts != nil && slices.Contains((*hosts)[id], host)
}

// watchNodes keeps which nodes are registered, while this one serves, until the context
// ends.
func (n *clusterNode) watchNodes(ctx context.Context) error {
	return clock.Every(ctx, lookEvery, func() error {
		if n.Node.Status().Self.Role != promote.Primary {
			n.known.hosts.Store(nil)
			n.away.look(nil, n.app.clock()) // the primary looks
			return nil
		}
		if nodes, err := n.Nodes(ctx); err == nil { // else as before, until etcd answers
			hosts := make(map[string][]string, len(nodes))
			for _, other := range nodes {
				hosts[other.ID] = hostsOf(ctx, other.RPC)
			}
			n.known.hosts.Store(&hosts)
			n.watchMembers(ctx, nodes)
		}
		return nil
	})
}

// hostsOf returns what an address of a node is as a peer; nothing if its name is of
// nobody.
func hostsOf(ctx context.Context, address string) (hosts []string) {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupIPAddr(ctx, name)
	if err != nil {
		return nil
	}
	for _, a := range found {
		hosts = append(hosts, share.Host(&net.TCPAddr{IP: a.IP, Zone: a.Zone}))
	}
	return hosts
}
