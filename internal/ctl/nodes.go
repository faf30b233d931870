package ctl

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/journal"
)

const (
	// maxNodes bounds how many nodes of a cluster are asked.
	maxNodes = 64
	// A node that has sent nothing for probeAfter is probed, so that a command that follows
	// it notices when it hangs. gRPC allows no less than 10 s.
	probeAfter   = 10 * time.Second
	probeTimeout = 3 * time.Second
	// askTimeout bounds how long a node, or etcd, may take to answer. A node waits at most
	// 2 s for etcd before it reports its status.
	askTimeout = 3 * time.Second
	// maxMessage bounds an answer of a node, in bytes: four times what nodes send by default.
	maxMessage = 4 * pb.DefaultMaxMessageBytes
)

// A node is an address that may be a node of the cluster, with its answer.
type node struct {
	address string
	id      string  // as registered, or as in its answer
	as      *caller // nil before it is asked
	conn    *grpc.ClientConn
	admin   pb.AdminServiceClient
	status  *pb.StatusResponse // nil if it did not answer as a node of this cluster that has started
	asked   time.Time          // when the status came, by the wall clock
	err     error              // why there is no status
	// answered says that some node answered there: it starts, is of another cluster, or refuses
	// the caller, if there is no status.
	answered bool
	// away is why the node, which has a status, is not reached at the address that it advertises.
	away error
}

// A caller is the identity with which masterctl calls nodes.
type caller struct {
	secrecy *tls.Config // nil for plain text
	token   string      // empty for none
}

func (f *Flags) caller() (c *caller, err error) {
	c = new(caller)
	if c.secrecy, err = f.secrecy(); err != nil {
		return nil, err
	}
	c.token, err = f.token()
	return c, err
}

func (c *caller) options() []grpc.DialOption {
	list := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: probeAfter, Timeout: probeTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	}
	if c.secrecy != nil {
		list = append(list, grpc.WithTransportCredentials(credentials.NewTLS(c.secrecy)))
	}
	if c.token != "" {
		list = append(list, grpc.WithPerRPCCredentials(client.Token(c.token)))
	}
	return list
}

// nodes are all nodes that could be found.
type nodes []*node

// withNodes returns the body of a command that first asks all nodes for their status.
func (f *Flags) withNodes(run func(context.Context, *cobra.Command, nodes) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		return f.Run(cmd, func(ctx context.Context) error {
			all, err := f.survey(ctx)
			defer all.close()
			if err != nil {
				return err
			}
			return run(ctx, cmd, all)
		})
	}
}

// survey gets the status of all nodes that can be found: those that the flags name, those
// registered in etcd, and those that any of these names. The result includes nodes that do
// not answer. If none answers, it returns them with an error.
func (f *Flags) survey(ctx context.Context) (nodes, error) {
	if f.Mooncake {
		return nil, cli.Misusef("the survey of the nodes needs gRPC; leave out --protocol=mooncake, masters speak both at one port")
	}
	as, err := f.caller()
	if err != nil {
		return nil, err
	}
	var next nodes
	for _, address := range f.addresses {
		next = append(next, &node{address: address})
	}
	registered, etcdErr := f.registered(ctx)
	if etcdErr != nil && len(next) == 0 {
		return nil, etcdErr
	}
	var all nodes
	for next = append(next, registered...); len(next) > 0; {
		asked := all.ask(ctx, as, f.clusterID, next)
		all, next = append(all, asked...), asked.named()
	}
	all = all.distinct()
	if len(all.answering()) == 0 {
		return all, all.silence(etcdErr)
	}
	return all, nil
}

// Widen adds the addresses of all nodes that can be found to those given. A long-running
// command must find the next primary even if the only node that it was given is gone.
//
// Over Mooncake's protocol nodes do not name one another.
func (f *Flags) Widen(ctx context.Context) error {
	if f.Mooncake {
		return nil
	}
	all, err := f.survey(ctx)
	defer all.close()
	if err != nil {
		return err
	}
	for _, n := range all.answering() {
		address := n.status.GetNode().GetRpcAddress()
		if !slices.Contains(f.addresses, address) && len(f.addresses) < client.MaxAddresses {
			f.addresses = append(f.addresses, address)
		}
	}
	return nil
}

func (f *Flags) registered(ctx context.Context) (list nodes, err error) {
	if len(f.etcd) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	access, err := f.etcdAccess(f.etcd)
	if err != nil {
		return nil, err
	}
	layout := journal.NewLayout(f.prefix, f.clusterID)
	var resp *clientv3.GetResponse
	c, err := etcdclient.Connect(ctx, f.etcd, access, nil)
	if err == nil {
		defer func() { _ = c.Close() }()
		resp, err = c.Get(ctx, layout.Nodes(), clientv3.WithPrefix(), clientv3.WithLimit(maxNodes))
	}
	if err != nil {
		return nil, errs.Wrap(errs.Unavailable, "survey", fmt.Errorf("etcd does not answer as it should: %w; check %s, or give the --address of a node", err, f.named("etcd-endpoints", "etcd-user")))
	}
	for _, kv := range resp.Kvs {
		var r struct {
			ID      string `json:"node_id"`
			Address string `json:"rpc_address"`
		}
		if json.Unmarshal(kv.Value, &r) == nil && r.Address != "" {
			list = append(list, &node{id: r.ID, address: r.Address})
		}
	}
	if len(list) == 0 && len(f.addresses) == 0 {
		return nil, errs.New(errs.Unavailable, "etcd", "no node is registered under %s; check --cluster-id and --etcd-prefix, and whether nodes run", layout.Nodes())
	}
	return list, nil
}

func (ns nodes) named() (list nodes) {
	for _, n := range ns {
		for _, other := range n.status.GetNodes() {
			list = append(list, &node{id: other.GetNodeId(), address: other.GetRpcAddress()})
		}
		if address := n.status.GetLeaderAddress(); address != "" {
			list = append(list, &node{id: n.status.GetLeaderNodeId(), address: address})
		}
	}
	return list
}

// ask asks, at the same time, those of next that were not asked yet, and returns them.
func (ns nodes) ask(ctx context.Context, as *caller, clusterID string, next nodes) (asked nodes) {
	for _, n := range next {
		known := func(o *node) bool {
			return (o.id == "" || n.id == "" || o.id == n.id) && (o.address == n.address || n.id != "" && o.status != nil)
		}
		if !slices.ContainsFunc(ns, known) && !slices.ContainsFunc(asked, known) && len(ns)+len(asked) < maxNodes {
			asked = append(asked, n)
		}
	}
	var wg sync.WaitGroup
	for _, n := range asked {
		wg.Go(func() { n.err = n.ask(ctx, as, clusterID) })
	}
	wg.Wait()
	return asked
}

func (n *node) ask(ctx context.Context, as *caller, clusterID string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	n.as = as
	n.conn, err = grpc.NewClient(n.address, as.options()...)
	if err != nil {
		return err
	}
	n.admin = pb.NewAdminServiceClient(n.conn)
	s, err := n.admin.Status(ctx, &pb.StatusRequest{})
	_, from := rpcerr.Parse(err)
	other := cmp.Or(from.ClusterID, s.GetHeader().GetClusterId())
	switch n.answered = err == nil || from.NodeID != ""; {
	case n.answered && other != clusterID:
		return fmt.Errorf("it belongs to cluster %q, not %q: correct the address or --cluster-id", other, clusterID)
	case err != nil:
		n.id = cmp.Or(n.id, from.NodeID)
		return rpcerr.Plain(err)
	}
	id := s.GetNode().GetNodeId()
	if n.id != "" && id != n.id {
		return fmt.Errorf("node %s answers there: give %s an --advertise-address at which it alone is reached", id, n.id)
	}
	n.status, n.id, n.asked = s, id, clock.Wall()
	return nil
}

// distinct leaves out nodes that were found at two addresses, and sorts by id.
func (ns nodes) distinct() (list nodes) {
	for _, n := range ns {
		same := slices.IndexFunc(list, func(o *node) bool { return n.id != "" && o.id == n.id })
		switch {
		case same < 0:
			list = append(list, n)
		case list[same].status == nil:
			list[same].close()
			list[same] = n
		default:
			n.close()
		}
	}
	slices.SortFunc(list, func(a, b *node) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.address, b.address)) })
	return list
}

// refuses reports whether the node answered that the caller lacks a role, or is unknown.
func (n *node) refuses() bool {
	e, from := rpcerr.Parse(n.err)
	return n.err != nil && from.NodeID != "" && e.Kind == errs.IllegalClient
}

func (n *node) close() {
	if n.conn != nil {
		_ = n.conn.Close()
	}
}

func (ns nodes) close() {
	for _, n := range ns {
		n.close()
	}
}

// silence returns the error for when no node answers, with the failure of etcd, if there is
// one. It is of kind IllegalClient if every node that could be reached refuses the caller.
func (ns nodes) silence(etcd error) error {
	e := &errs.Error{Kind: errs.Unavailable, Op: "Status", Detail: "no node answers", Err: etcd}
	refused, answered := 0, 0
	for _, n := range ns {
		e.Detail += "; " + rpcerr.At(n.address, n.err)
		if _, from := rpcerr.Parse(n.err); from.NodeID != "" {
			answered++
		}
		if n.refuses() {
			refused++
		}
	}
	if refused > 0 && refused == answered {
		e.Kind = errs.IllegalClient
	}
	return e
}

// witnesses returns the witnesses that the primary knows, or another node if none is primary.
func (ns nodes) witnesses() (list []witnessResult) {
	if len(ns.answering()) == 0 {
		return nil
	}
	for _, m := range ns.best().status.GetJournal().GetEtcdMembers() {
		if w := m.GetWitness(); w != nil {
			list = append(list, witnessResult{m.GetName(), w.GetHttpAddress(), w.GetVersion(), !m.GetLearner(), w.GetEtcdBytes(), w.GetEtcdQuotaBytes()})
		}
	}
	return list
}

// members returns the members of the nodes' own etcd, from the first node that knows any.
func (ns nodes) members() []*pb.EtcdMember {
	for _, n := range ns.answering() {
		if list := n.status.GetJournal().GetEtcdMembers(); len(list) > 0 {
			return list
		}
	}
	return nil
}

func (ns nodes) answering() (list nodes) {
	for _, n := range ns {
		if n.status != nil {
			list = append(list, n)
		}
	}
	return list
}

// primary returns the node that serves, in the highest term; nil if none does.
func (ns nodes) primary() (best *node) {
	for _, n := range ns.serving() {
		if best == nil || n.status.GetHeader().GetTerm() > best.status.GetHeader().GetTerm() {
			best = n
		}
	}
	return best
}

func (ns nodes) best() *node { return cmp.Or(ns.primary(), ns.answering()[0]) }

// choose returns the answering node of an id, or the only one if none is given.
func (ns nodes) choose(id string) (*node, error) {
	answering := ns.answering()
	var ids []string
	for _, n := range answering {
		if n.id == id || id == "" && len(answering) == 1 {
			return n, nil
		}
		ids = append(ids, n.id)
	}
	if id == "" {
		return nil, cli.Misusef("%d nodes answer; choose one with --node: %v", len(ids), ids)
	}
	return nil, fmt.Errorf("no node %q answers; there are: %v", id, ids)
}

// adminError returns the error with which a call to a node ended.
func adminError(err error) *errs.Error {
	e, from := rpcerr.Parse(err)
	if _, ok := status.FromError(err); !ok || from.NodeID != "" || e.Kind == errs.NotSupported {
		return e
	}
	return &errs.Error{Kind: e.Kind, Detail: "no answer: " + rpcerr.Plain(err).Error()}
}

// readError is adminError for a call that changes nothing, so that its outcome is never open.
func readError(err error) error {
	e := adminError(err)
	if e.Kind == errs.Unresolved {
		e.Kind = errs.Unavailable
	}
	return e
}
