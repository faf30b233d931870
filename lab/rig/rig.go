// Package rig runs a cluster on this machine as the child processes of one
// program, which starts itself again as its own child: etcd members and nodes,
// and a way to ask each node how it is. No child outlives the program.
//
// The demo and the fault drills are built on it. It starts and asks; it decides
// nothing, and it must never be part of a production setup.
package rig

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/app"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/lab/procs"
	"github.com/understudy-store/understudy/promote"
)

// Names of the children's commands.
const (
	etcdCommand    = "__etcd"
	masterCommand  = "__master"
	standbyCommand = "__standby"
)

// Children returns the commands under which a program runs as a child.
func Children() []*cobra.Command {
	return []*cobra.Command{
		EtcdCommand(etcdCommand),
		app.Command(masterCommand, config.Primary),
		app.Command(standbyCommand, config.Standby),
	}
}

// RunChild runs what this process was started as by StartEtcd or StartNode, and
// returns its exit status. It reports false if the process is no such child. A
// program that starts clusters calls it before anything else.
func RunChild() (status int, child bool) {
	for _, c := range Children() {
		if len(os.Args) > 1 && c.Name() == os.Args[1] {
			procs.DieWithParent()
			forgetSettings()
			c.SetArgs(os.Args[2:])
			return app.Main(c), true
		}
	}
	return 0, false
}

// forgetSettings takes settings of nodes out of a child's environment: a child
// is what its flags say, whatever the shell has set for other clusters.
func forgetSettings() {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, cli.EnvPrefix) {
			_ = os.Unsetenv(name)
		}
	}
}

// StartEtcd starts an etcd member in a folder of its name under dir, and waits
// until it serves.
func StartEtcd(ctx context.Context, dir, name string, args ...string) (*procs.Process, error) {
	return procs.Start(ctx, dir, name, append([]string{etcdCommand}, args...)...)
}

// A Node is a master or standby process, and a way to ask it.
type Node struct {
	*procs.Process
	Admin pb.AdminServiceClient
	Conn  *grpc.ClientConn // to where it listens
}

// StartNode starts a node in a folder of its name under dir. It is asked at the
// given host:port, or where it says that it is reached if that is empty.
func StartNode(ctx context.Context, dir, name string, role promote.Role, address string, args ...string) (*Node, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return StartNodeOf(ctx, exe, dir, name, role, address, args...)
}

// StartNodeOf is StartNode with another build of this program.
func StartNodeOf(ctx context.Context, exe, dir, name string, role promote.Role, address string, args ...string) (*Node, error) {
	command := masterCommand
	if role == config.Standby {
		command = standbyCommand
	}
	proc, err := procs.StartProgram(ctx, exe, dir, name, append([]string{command}, args...)...)
	if err != nil {
		return nil, err
	}
	if address == "" {
		address = proc.RPC
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		proc.Kill()
		return nil, err
	}
	return &Node{Process: proc, Conn: conn, Admin: pb.NewAdminServiceClient(conn)}, nil
}

// Close kills the node, if it still runs, and lets its connection go.
func (n *Node) Close() {
	_ = n.Conn.Close()
	n.Kill()
}

const (
	// untilTimeout bounds how long a node may take to become what it should.
	untilTimeout = 60 * time.Second
	// askTimeout bounds one question: a node that is stopped does not answer.
	askTimeout = 2 * time.Second
)

// Until waits until a node's status is as wanted, and returns it.
func (n *Node) Until(ctx context.Context, what string, wanted func(*pb.StatusResponse) bool) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, untilTimeout, fmt.Errorf("%s: it is not so after %v that it %s; see %s", n.Name, untilTimeout, what, n.Log))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if s, err := n.Status(ctx); err == nil && wanted(s) {
			return s, nil
		}
		if !n.Alive() {
			return nil, fmt.Errorf("%s has ended; see %s", n.Name, n.Log)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// Status asks once, for two seconds at most.
func (n *Node) Status(ctx context.Context) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return n.Admin.Status(ctx, &pb.StatusRequest{})
}

// Serves is a status of a primary.
func Serves(s *pb.StatusResponse) bool { return s.GetNode().GetRole() == pb.Role_ROLE_PRIMARY }

// Promotable is a status of a node that could take over.
func Promotable(s *pb.StatusResponse) bool { return s.GetNode().GetPromotable() }

// SameDigest compares a follower's digest with the primary's at one sequence.
// The follower has 20 s to come there.
func SameDigest(ctx context.Context, primary, follower *Node) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	a, err := primary.Admin.Digest(ctx, &pb.DigestRequest{})
	if err != nil {
		return false, fmt.Errorf("digest of %s: %w", primary.Name, err)
	}
	b, err := follower.Admin.Digest(ctx, &pb.DigestRequest{Sequence: a.GetSequence()})
	if err != nil {
		return false, fmt.Errorf("digest of %s: %w", follower.Name, err)
	}
	return a.GetDigest() == b.GetDigest(), nil
}
