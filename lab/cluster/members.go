package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/lab/netfault"
)

// A Member is a member of etcd.
type Member struct {
	Name    string
	process *Process        // nil while it is down
	clients *netfault.Proxy // of the cluster's clients; nil without proxies
	peers   *netfault.Proxy

	listens, peersAt string // addresses, if each node runs a member
}

func (c *Cluster) makeMembers() (err error) {
	if c.OwnEtcd {
		return c.makeOwnMembers()
	}
	for i := range c.Etcd {
		m := &Member{Name: "etcd"}
		if c.Etcd > 1 {
			m.Name = fmt.Sprintf("etcd-%d", i+1)
		}
		c.Members = append(c.Members, m)
		if c.Proxies {
			if m.clients, err = netfault.Listen(""); err != nil {
				return err
			}
		}
		if m.peers, err = netfault.Listen(""); err != nil {
			return err
		}
	}
	return nil
}

// makeOwnMembers chooses the addresses of each node's member, which do not change.
func (c *Cluster) makeOwnMembers() error {
	names := slices.Clone(c.Names)
	if c.Witness {
		names = append(names, witnessName)
	}
	for _, name := range names {
		m := &Member{Name: name}
		for _, address := range []*string{&m.listens, &m.peersAt} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			defer func() { _ = l.Close() }() // only after all ports are chosen
			*address = l.Addr().String()
		}
		c.Members = append(c.Members, m)
	}
	return nil
}

const witnessName = "witness"

// WitnessMember is the member of the node without metadata.
func (c *Cluster) WitnessMember() *Member { return c.Members[len(c.Names)] }

// StartWitness starts the node without metadata, for the first time or again.
func (c *Cluster) StartWitness(ctx context.Context) (err error) {
	m := c.WitnessMember()
	args := []string{
		standbyCommand, "--witness", "--node-id=" + m.Name, "--cluster_id=" + c.ID, "--rpc_address=127.0.0.1", "--metrics_port=0",
		"--etcd-listen=" + m.listens, "--etcd-peer-listen=" + m.peersAt, "--join=" + strings.Join(c.Addrs(), ","), "--data-dir=" + c.data(m), "--log-format=json",
	}
	if c.SessionTTL > 0 {
		args = append(args, "--session-ttl="+c.SessionTTL.String())
	}
	m.process, err = StartProcess(ctx, c.Program, c.Dir, m.Name, args...)
	return err
}

// startTries is how often to try to start a process, since another process may take the port
// that was free.
const startTries = 3

// onFreePort starts a process at a loopback address that was free a moment ago.
func onFreePort(ctx context.Context, start func(address string) error) error {
	for try := 1; ; try++ {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		_ = l.Close()
		if err = start(l.Addr().String()); err == nil || ctx.Err() != nil || try == startTries {
			return err
		}
	}
}

// StartMembers starts members that are down, on their data if they have any.
func (c *Cluster) StartMembers(ctx context.Context, members ...*Member) error {
	if c.OwnEtcd {
		return nil // they start with their nodes
	}
	var starting errgroup.Group
	for _, m := range members {
		starting.Go(func() error { return c.startMember(ctx, m) })
	}
	if err := starting.Wait(); err != nil || !c.Proxies {
		return err
	}
	c.leadToMembers()
	return nil
}

// leadToMembers points the proxies to the members.
func (c *Cluster) leadToMembers() {
	for i, m := range c.Members {
		if m.process == nil || m.clients == nil {
			continue
		}
		m.clients.SetTarget(m.process.Etcd[0])
		for _, n := range c.Nodes {
			n.etcd[i].SetTarget(m.process.Etcd[0])
		}
	}
}

// startMember starts one member. It serves when most of them have been started.
func (c *Cluster) startMember(ctx context.Context, m *Member) error {
	args := []string{etcdCommand, "--listen=127.0.0.1:0", "--data-dir=" + c.data(m)}
	if len(c.Members) > 1 {
		var all []string
		for _, other := range c.Members {
			all = append(all, other.Name+"="+other.peers.Addr())
		}
		args = append(args, "--name="+m.Name, "--initial-cluster="+strings.Join(all, ","))
	}
	return onFreePort(ctx, func(address string) (err error) {
		more := args
		if len(c.Members) > 1 {
			m.peers.SetTarget(address)
			more = append(slices.Clone(args), "--listen-peer="+address)
		}
		m.process, err = StartProcess(ctx, "", c.Dir, m.Name, more...)
		return err
	})
}

// Kill ends the member's process at once.
func (m *Member) Kill() {
	m.process.Kill()
	m.process = nil
}

// Signal sends a signal to the member's process.
func (m *Member) Signal(s syscall.Signal) error { return m.process.Signal(s) }

// Ended is closed when its process has ended.
func (m *Member) Ended() <-chan struct{} { return m.process.Ended() }

// PID returns the id of the member's process.
func (m *Member) PID() int { return m.process.PID }

func (m *Member) close() {
	if m.process != nil {
		m.process.Kill()
	}
	for _, p := range []*netfault.Proxy{m.clients, m.peers} {
		if p != nil {
			p.Close()
		}
	}
}

// address returns the address at which the cluster's clients reach the member.
func (m *Member) address() string {
	switch {
	case m.clients != nil:
		return m.clients.Addr()
	case m.listens != "":
		return m.listens
	}
	return m.process.Etcd[0]
}

// Endpoints returns the endpoints of etcd, for clients and drills.
func (c *Cluster) Endpoints() (list []string) {
	for _, m := range c.Members {
		list = append(list, m.address())
	}
	return list
}

// EtcdLeader returns the member that the members report as their leader.
func (c *Cluster) EtcdLeader(ctx context.Context) (leader *Member, err error) {
	err = Poll(ctx, time.Minute, "etcd has a leader", func(ctx context.Context) (bool, error) {
		for _, m := range c.Members {
			if m.process == nil {
				continue
			}
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			s, err := c.Client.Status(ctx, m.address())
			cancel()
			if err == nil && s.Leader != 0 && s.Leader == s.Header.MemberId {
				leader = m
				return true, nil
			}
		}
		return false, nil
	})
	return leader, err
}
