package cluster

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/netfault"
)

// A Node is a master or standby of a cluster, also across restarts. Only one goroutine may
// start and end it.
type Node struct {
	*Process // its current process, or its last one; nil before the first
	Name     string
	Admin    pb.AdminServiceClient
	Conn     *grpc.ClientConn // not affected by faults
	Front    *netfault.Proxy  // its clients and peers reach it here; nil without proxies
	Crashed  bool             // it had already ended by itself at a Kill
	// Program is the executable of an older release for its next start; empty for the
	// cluster's program. It gets no flag that such a release does not have.
	Program string

	listens  string
	etcd     []*netfault.Proxy // proxies to the members of etcd
	paused   bool              // by a signal: it answers nobody
	loads    map[journal.Reason]int
	patience time.Duration // Config.Patience
}

// Addr is where clients and peers reach it.
func (n *Node) Addr() string {
	if n.Front != nil {
		return n.Front.Addr()
	}
	return n.listens
}

// Alive reports whether it runs; it may be paused.
func (n *Node) Alive() bool { return n.Process != nil && n.Process.Alive() }

// Kill kills the node, and sets Crashed if it had ended by itself.
func (n *Node) Kill() {
	if n.Process == nil {
		return
	}
	n.Crashed = n.Crashed || !n.Alive()
	n.keepLoads()
	n.Process.Kill()
}

// Terminate asks it to end in order.
func (n *Node) Terminate() error {
	n.keepLoads()
	return n.Signal(syscall.SIGTERM)
}

// Pause stops its process, so that it hangs for everyone.
func (n *Node) Pause() error {
	n.paused = true
	return n.Signal(syscall.SIGSTOP)
}

// Resume lets a paused node go on.
func (n *Node) Resume() error {
	n.paused = false
	return n.Signal(syscall.SIGCONT)
}

// SetEtcd breaks, or heals, the node's connections to etcd.
func (n *Node) SetEtcd(f netfault.Fault) {
	for _, p := range n.etcd {
		p.Set(f)
	}
}

// LoseBusiest silently drops all traffic of the busiest connection to each member of etcd.
func (n *Node) LoseBusiest() {
	for _, p := range n.etcd {
		p.LoseBusiest()
	}
}

func (n *Node) close() {
	if n.Process != nil {
		_ = n.Conn.Close()
		n.Process.Kill()
	}
	for _, p := range append(n.etcd, n.Front) {
		if p != nil {
			p.Close()
		}
	}
}

const (
	// patience is the default of Config.Patience.
	patience = 90 * time.Second
	// askTimeout bounds one request, since a stopped node does not answer.
	askTimeout = 2 * time.Second
)

// Until waits until wanted returns true for the node's status, and returns the status.
func (n *Node) Until(ctx context.Context, what string, wanted func(*pb.StatusResponse) bool) (s *pb.StatusResponse, err error) {
	err = Poll(ctx, cmp.Or(n.patience, patience), "it "+what, func(ctx context.Context) (bool, error) {
		if !n.Alive() {
			return false, fmt.Errorf("it has ended")
		}
		var err error
		s, err = n.Status(ctx)
		return err == nil && wanted(s), nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w; see %s", n.Name, err, n.Log)
	}
	return s, nil
}

// UntilServes waits until it is the primary.
func (n *Node) UntilServes(ctx context.Context) (*pb.StatusResponse, error) {
	return n.Until(ctx, "serves", Serves)
}

// UntilPromotable waits until it could take over.
func (n *Node) UntilPromotable(ctx context.Context) error {
	_, err := n.Until(ctx, "could take over", Promotable)
	return err
}

// UntilCaughtUp waits until it has applied what the primary has committed by now.
func (n *Node) UntilCaughtUp(ctx context.Context, primary *Node) error {
	now, err := primary.Status(ctx)
	if err != nil {
		return fmt.Errorf("status of %s: %w", primary.Name, err)
	}
	_, err = n.Until(ctx, "has caught up", func(s *pb.StatusResponse) bool {
		return s.GetState().GetSequence() >= now.GetState().GetSequence()
	})
	return err
}

// UntilHandover waits until a primary has seen in etcd that a standby could take over.
// Standbys report that there about once a second.
func (n *Node) UntilHandover(ctx context.Context) error {
	_, err := n.Until(ctx, "knows of a standby that could take over", func(s *pb.StatusResponse) bool {
		return slices.ContainsFunc(s.GetNodes(), func(other *pb.Node) bool { return other.GetPromotable() && other.GetNodeId() != n.Name })
	})
	return err
}

// Status asks the node for its status once, for two seconds at most.
func (n *Node) Status(ctx context.Context) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return n.Admin.Status(ctx, &pb.StatusRequest{})
}

// Serves reports whether a status is that of a primary.
func Serves(s *pb.StatusResponse) bool { return s.GetNode().GetRole() == pb.Role_ROLE_PRIMARY }

// Promotable reports whether a status is that of a node that could take over.
func Promotable(s *pb.StatusResponse) bool { return s.GetNode().GetPromotable() }

// SameDigest compares a follower's digest with the primary's at one sequence. The follower
// has 20 s to apply that sequence.
func SameDigest(ctx context.Context, primary, follower *Node) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	a, err := primary.Admin.Digest(ctx, &pb.DigestRequest{})
	if err != nil {
		return false, fmt.Errorf("digest of %s: %w", primary.Name, err)
	}
	var b *pb.DigestResponse
	err = Poll(ctx, 20*time.Second, follower.Name+" has a digest", func(ctx context.Context) (bool, error) {
		var err error
		b, err = follower.Admin.Digest(ctx, &pb.DigestRequest{Sequence: a.GetSequence()})
		if status.Code(err) == codes.Unavailable { // the follower's own term is ending
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return false, fmt.Errorf("digest of %s: %w", follower.Name, err)
	}
	return a.GetDigest() == b.GetDigest(), nil
}

// Metrics reads the node's metrics. A key is the name with its labels, as written in the
// answer.
func (n *Node) Metrics(ctx context.Context) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.HTTP+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", n.Name, err)
	}
	defer func() { _ = resp.Body.Close() }()
	all := make(map[string]float64)
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			all[name] = value
		}
	}
	return all, lines.Err()
}

// A DrainJob is the progress of a drain job.
type DrainJob struct {
	ID      string `json:"job_id"`
	Status  string `json:"status_name"`
	Blocked int    `json:"blocked_units"`
	Active  int    `json:"active_units"`
}

// Drain begins a drain job of a segment at the node, and returns its id.
func (n *Node) Drain(ctx context.Context, segment string) (id string, err error) {
	job, err := n.drainJob(ctx, http.MethodPost, "", fmt.Sprintf(`{"segments": [%q]}`, segment))
	return job.ID, err
}

// DrainJob asks the node for a drain job.
func (n *Node) DrainJob(ctx context.Context, id string) (DrainJob, error) {
	return n.drainJob(ctx, http.MethodGet, "/query?job_id="+id, "")
}

func (n *Node) drainJob(ctx context.Context, method, path, body string) (job DrainJob, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+n.HTTP+"/api/v1/drain_jobs"+path, strings.NewReader(body))
	if err != nil {
		return job, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return job, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return job, fmt.Errorf("%s of a drain job%s%s: %s", method, path, body, resp.Status)
	}
	return job, json.NewDecoder(resp.Body).Decode(&job)
}

// SnapshotLoads counts the snapshots that the node has loaded, across all its processes, by
// the reason. Processes that ended by themselves, or were killed while paused, do not count.
func (n *Node) SnapshotLoads() map[journal.Reason]int {
	all := maps.Clone(n.loads)
	if all == nil {
		all = make(map[journal.Reason]int)
	}
	if !n.Alive() || n.paused {
		return all
	}
	now, err := n.Metrics(context.Background())
	if err != nil {
		return all
	}
	for name, count := range now {
		if labels, ok := strings.CutPrefix(name, `understudy_snapshot_loads_total{reason="`); ok {
			all[journal.Reason(strings.TrimSuffix(labels, `"}`))] += int(count)
		}
	}
	return all
}

// keepLoads keeps the counts of a process that ends.
func (n *Node) keepLoads() { n.loads = n.SnapshotLoads() }
