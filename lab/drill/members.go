package drill

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"

	"github.com/understudy-store/understudy/lab/netfault"
	"github.com/understudy-store/understudy/lab/procs"
	"github.com/understudy-store/understudy/lab/rig"
)

// A member is one of etcd's.
type member struct {
	name    string
	process *procs.Process  // nil while it is down
	clients *netfault.Proxy // of the recorded clients and the drill itself
	peers   *netfault.Proxy
}

func (c *cluster) makeMembers(n int) error {
	for i := range n {
		m := &member{name: fmt.Sprintf("etcd-%d", i+1)}
		c.members = append(c.members, m)
		var err error
		if m.clients, err = netfault.Listen(""); err != nil {
			return err
		}
		if m.peers, err = netfault.Listen(""); err != nil {
			return err
		}
	}
	return nil
}

// freePort returns a loopback address that was free a moment ago.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// startMembers starts members that are down, on their data if they have any.
func (c *cluster) startMembers(ctx context.Context, members ...*member) error {
	errs := make([]error, len(members))
	var starting sync.WaitGroup
	for i, m := range members {
		starting.Go(func() { errs[i] = c.startMember(ctx, m) })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, m := range c.members {
		if m.process == nil {
			continue
		}
		m.clients.SetTarget(m.process.Etcd[0])
		for _, n := range c.nodes {
			n.etcd[i].SetTarget(m.process.Etcd[0])
		}
	}
	return nil
}

// startMember starts one member. It serves when most of them have been started.
func (c *cluster) startMember(ctx context.Context, m *member) error {
	args := []string{"--listen=127.0.0.1:0", "--data-dir=" + filepath.Join(c.dir, m.name, "data")}
	if len(c.members) == 1 {
		var err error
		m.process, err = rig.StartEtcd(ctx, c.dir, m.name, args...)
		return err
	}
	var all []string
	for _, other := range c.members {
		all = append(all, other.name+"="+other.peers.Addr())
	}
	args = append(args, "--name="+m.name, "--initial-cluster="+strings.Join(all, ","))
	var err error
	for range startTries {
		var listen string
		if listen, err = freePort(); err != nil {
			return err
		}
		m.peers.SetTarget(listen)
		if m.process, err = rig.StartEtcd(ctx, c.dir, m.name, append(args, "--listen-peer="+listen)...); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// kill ends members at once.
func (m *member) kill() {
	m.process.Kill()
	m.process = nil
}

// endpoints are those of etcd for clients and for the drill.
func (c *cluster) endpoints() (list []string) {
	for _, m := range c.members {
		list = append(list, m.clients.Addr())
	}
	return list
}
