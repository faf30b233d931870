package app

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/etcd/members"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/promote"
)

const (
	// lookEvery is how often a primary reads in etcd which nodes are registered.
	lookEvery = 2 * time.Second
	// lookupTimeout bounds how long one of their names may take to be resolved.
	lookupTimeout = time.Second
)

// knownNodes are the nodes that were registered in etcd at the last look: for each id, the
// hosts of its address. A node that does not serve knows none.
type knownNodes struct {
	hosts atomic.Pointer[map[string][]string]
}

func (r *knownNodes) has(id, host string) bool {
	hosts := r.hosts.Load()
	return hosts != nil && slices.Contains((*hosts)[id], host)
}

// watchNodes keeps knownNodes up to date while this node serves, until the context ends.
func (n *clusterNode) watchNodes(ctx context.Context) error {
	return clock.Every(ctx, lookEvery, func() error {
		if n.Node.Status().Self.Role != promote.Primary {
			n.known.hosts.Store(nil)
			n.away.look(nil, n.app.clock()) // only the primary looks
			n.missing.look(nil, n.app.clock())
			return nil
		}
		if nodes, err := n.Nodes(ctx); err == nil { // else as before, until etcd answers
			hosts := make(map[string][]string, len(nodes))
			for _, other := range nodes {
				hosts[other.ID] = hostsOf(ctx, other.RPC)
			}
			n.known.hosts.Store(&hosts)
			n.watchMembers(ctx, nodes)
			n.watchComplete(ctx, nodes)
		}
		return nil
	})
}

// watchComplete logs which complete nodes are away, by a look at which are registered.
func (n *clusterNode) watchComplete(ctx context.Context, nodes []promote.NodeInfo) {
	complete, err := n.CompleteNodes(ctx)
	if err != nil {
		return // as before, until etcd answers
	}
	outcome := make(map[string]error, len(complete))
	for _, id := range complete {
		outcome[id] = nil
		if !alive(nodes, nil)(id) {
			outcome[id] = errNotRegistered
		}
	}
	n.missing.look(outcome, n.app.clock())
}

// awayWarnings says which complete nodes are away, except those that run a member of etcd:
// memberWarnings reports them.
func awayWarnings(complete []string, list []members.Member, alive func(id string) bool) []string {
	var away []string
	for _, id := range complete {
		if !alive(id) && !slices.ContainsFunc(list, func(m members.Member) bool { return m.Name == id }) {
			away = append(away, id)
		}
	}
	if away == nil {
		return nil
	}
	return []string{fmt.Sprintf("nodes that hold the whole state are away: %s; start them, or strike them off if they do not come back: masterctl forget --yes %s",
		strings.Join(away, ", "), strings.Join(away, " "))}
}

// hostsOf returns the hosts of a node's address, as share.Host names them; none if its name
// cannot be resolved.
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
