package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
	"github.com/understudy-store/understudy/internal/etcd/members"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/promote"
)

const (
	joinTimeout = 10 * time.Second // for the answer of one node, which asks a majority of etcd's members
	joinPause   = time.Second
	waitSaid    = 10 * time.Second // between two log lines that say what a node waits for
)

// place returns the member as which this node's etcd starts. A node without data that is
// given nodes to join asks them until one takes it in, and never founds an etcd beside theirs.
func (a *App) place(ctx context.Context, dir string, secrecy etcdserver.TLS) (etcdserver.Member, error) {
	m := etcdserver.Member{Name: a.cfg.Node.ID, PeerAddr: a.cfg.PeerAddress(), Founds: a.cfg.HA.ClusterInit}
	if etcdserver.HasData(dir) {
		return m, nil
	}
	if err := a.checkPlace(ctx, m, secrecy); err != nil || len(a.cfg.HA.Join) == 0 {
		return m, err
	}
	// Never in plain text if this node has a certificate, since the request carries the join
	// token; the others have certificates, too, then.
	others := &peers{clusterID: a.cfg.HA.ClusterID, nodeID: a.cfg.Node.ID, log: a.log, certs: a.certs}
	said := make(map[string]string)
	for {
		var refused []string
		for _, address := range a.cfg.HA.Join {
			if address == a.cfg.Node.AdvertiseAddress {
				continue
			}
			initial, err := a.askToJoin(ctx, others, address, etcdserver.PeerURL(m.PeerAddr, secrecy))
			if err == nil {
				m.InitialCluster = initial
				a.log.Info().Str("by", address).Str("members", initial).Msg("this node joins etcd, and votes there when it has caught up")
				return m, nil
			}
			why := refusalOf(err)
			refused = append(refused, address+": "+why)
			if said[address] != why && ctx.Err() == nil {
				said[address] = why
				a.log.Warn().Str("error", why).Msg(waitsToJoin)
			}
		}
		a.waiting.say(waitsToJoin + ": " + strings.Join(refused, "; "))
		if err := clock.Sleep(ctx, joinPause); err != nil {
			return m, err
		}
	}
}

// waitsToJoin begins what a node says while no other one takes it in.
const waitsToJoin = "this node waits until it may join etcd"

// longestRefusal bounds what is quoted of another node, in bytes.
const longestRefusal = 512

// refusalOf is why another node does not take this one in. Of one that waits, too, it quotes
// no more than that: its reason quotes this node's, and so on without an end.
func refusalOf(err error) string {
	text := err.Error()
	if before, _, waits := strings.Cut(text, waitsToJoin); waits {
		text = before + waitsToJoin + ", too"
	}
	if len(text) > longestRefusal {
		text = strings.ToValidUTF8(text[:longestRefusal], "") + "..."
	}
	return text
}

// checkPlace refuses a start that would leave behind a member which never starts, or found a
// second etcd beside the one of which this node was a member.
func (a *App) checkPlace(ctx context.Context, m etcdserver.Member, secrecy etcdserver.TLS) error {
	founds := len(a.cfg.HA.Join) == 0
	if !founds && !slices.ContainsFunc(a.cfg.HA.Join, func(address string) bool { return address != a.cfg.Node.AdvertiseAddress }) {
		return fmt.Errorf("--join names this node alone (%s): name the others", a.cfg.Node.AdvertiseAddress)
	}
	if !founds {
		return etcdserver.CheckUnclaimed(ctx, m.PeerAddr, secrecy, 0)
	}
	if err := a.mayFound(); err != nil {
		return err
	}
	switch err := etcdserver.CheckUnclaimed(ctx, m.PeerAddr, secrecy, etcdserver.ClaimWait); {
	case errors.As(err, new(*net.OpError)): // it cannot listen
		return err
	case err != nil:
		return fmt.Errorf("--cluster-init: %w; to join it again: --join, and masterctl member replace --yes %s", err, m.Name)
	}
	return ctx.Err()
}

func (a *App) askToJoin(ctx context.Context, others *peers, address, peerURL string) (string, error) {
	token, err := a.joinToken()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(rpc.WithJoinToken(ctx, token), joinTimeout)
	defer cancel()
	resp, err := ask(others, address, func(c pb.AdminServiceClient) (*pb.AddMemberResponse, error) {
		return c.AddMember(ctx, &pb.AddMemberRequest{Name: a.cfg.Node.ID, PeerUrl: peerURL, ClusterId: a.cfg.HA.ClusterID})
	})
	return resp.GetInitialCluster(), err
}

// minJoinToken is the least length of the secret: 128 bits in hexadecimal digits.
const minJoinToken = 32

// joinToken returns the secret by which nodes may join; empty for none, as on loopback.
func (a *App) joinToken() (string, error) {
	file := a.cfg.HA.JoinTokenFile
	if file == "" {
		return "", nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--join-token-file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if len(token) < minJoinToken {
		return "", fmt.Errorf("--join-token-file: %s has %d characters, at least %d are needed", file, len(token), minJoinToken)
	}
	return token, nil
}

// checkJoinToken reports whether a node that joins has shown the secret.
func (a *App) checkJoinToken(shown string) error {
	token, err := a.joinToken()
	if err != nil {
		return errs.Wrap(errs.Unavailable, "AddMember", err)
	}
	got, want := sha256.Sum256([]byte(shown)), sha256.Sum256([]byte(token))
	switch {
	case subtle.ConstantTimeCompare(got[:], want[:]) == 1:
		return nil
	case shown == "":
		return errs.New(errs.IllegalClient, "AddMember", "a node that joins must show a join token: give it the same --join-token-file as the others")
	case token == "":
		return errs.New(errs.IllegalClient, "AddMember", "the other nodes have no join token: give all nodes the same --join-token-file, or none")
	}
	return errs.New(errs.IllegalClient, "AddMember", "the join token is another one than this node's: give all nodes the same --join-token-file")
}

// checkPeer refuses a new member that could not reach this node's member, or only in plain
// text: either all are on loopback or none, and either all use TLS or none.
func (a *App) checkPeer(peerURL string) error {
	u, err := url.Parse(peerURL)
	if err != nil {
		return errs.New(errs.InvalidParams, "AddMember", "the address of the new member is no URL: %.100q", peerURL)
	}
	own, secure := config.Loopback(a.cfg.PeerAddress()), a.cfg.Security.TLS()
	if config.Loopback(u.Host) != own || (u.Scheme == "https") != secure {
		return errs.New(errs.InvalidParams, "AddMember", "a member at %.100s cannot talk to this one (at %s, with TLS: %t): "+
			"see --etcd-peer-listen, --advertise-address and --tls-cert of the node that joins", peerURL, a.cfg.PeerAddress(), secure)
	}
	return nil
}

// startMember starts this node's member of etcd, and returns when it votes.
func (a *App) startMember(ctx context.Context, settings etcdserver.Settings) (*etcdserver.Server, error) {
	server, err := etcdserver.Launch(settings)
	if err != nil {
		return nil, err
	}
	const awaited = "this node waits for the other members of etcd: more than half of them must run"
	a.waiting.say(awaited)
	joining, cancel := context.WithCancel(ctx)
	var saying sync.WaitGroup
	saying.Go(func() {
		for clock.Sleep(joining, waitSaid) == nil {
			a.log.Warn().Msg(awaited)
		}
	})
	err = server.Join(ctx)
	cancel()
	saying.Wait()
	if err == nil {
		err = a.markMember()
	}
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return server, nil
}

// AddMember makes a node that joins a member of the nodes' own etcd.
func (n *clusterNode) AddMember(ctx context.Context, token, name, peerURL string) (string, error) {
	switch ha := n.app.cfg.HA; {
	case !ha.Embedded():
		return "", errs.New(errs.NotSupported, "AddMember", "this cluster's etcd is apart from its nodes: start the node that joins with their --etcd_endpoints in place of --join")
	case !ha.Members():
		return "", errs.New(errs.NotSupported, "AddMember", "this node has an etcd for itself alone: start it again with --cluster-init, then others can join it")
	}
	if err := n.app.checkJoinToken(token); err != nil {
		return "", err
	}
	if err := n.app.checkPeer(peerURL); err != nil {
		return "", err
	}
	return n.etcdCluster().Add(ctx, name, peerURL)
}

// RemoveMember removes a member whose node does not run: at once, or when that node joins
// again.
func (n *clusterNode) RemoveMember(ctx context.Context, name string, replace bool) error {
	if !n.app.cfg.HA.Members() {
		return errs.New(errs.NotSupported, "RemoveMember", "the nodes do not run etcd themselves, with --cluster-init and --join; manage its members with etcdctl")
	}
	if replace {
		return n.etcdCluster().Replace(ctx, name)
	}
	return n.etcdCluster().Remove(ctx, name)
}

func (n *clusterNode) etcdCluster() members.Cluster {
	layout := journal.NewLayout(n.app.cfg.HA.EtcdPrefix, n.app.cfg.HA.ClusterID)
	c := members.Cluster{Client: n.members, Replaced: layout.Replaced(), Alive: n.alive}
	if n.app.certs != nil {
		c.TLS = n.app.certs.Client()
	}
	return c
}

func (n *clusterNode) alive(ctx context.Context) (func(name string) bool, error) {
	nodes, err := n.Nodes(ctx)
	witnesses, err2 := n.Witnesses(ctx)
	return alive(nodes, witnesses), errors.Join(err, err2)
}

// listMembers returns the members of the nodes' own etcd. Without a majority it returns those
// that this node's member knows, and the names of those that answer.
func (n *clusterNode) listMembers(ctx context.Context) ([]members.Member, map[string]bool) {
	half, cancel := context.WithTimeout(ctx, lookTimeout/2)
	defer cancel()
	list, err := members.List(half, n.members)
	if err == nil {
		return list, nil
	}
	list, answering, _ := n.etcdCluster().Answering(ctx) // if that fails, so does Nodes, whose error is shown
	return list, answering
}

func (v *view) memberMessages() (messages []*pb.EtcdMember) {
	for _, m := range v.members {
		message := &pb.EtcdMember{Name: m.Name, PeerUrl: m.PeerURL, Learner: m.Learner, Alive: alive(v.nodes, v.witnesses)(m.Name) || v.answering[m.Name]}
		for _, w := range v.witnesses {
			if w.ID == m.Name {
				message.Witness = &pb.Witness{HttpAddress: w.HTTP, Version: w.Version, EtcdBytes: w.EtcdBytes, EtcdQuotaBytes: w.EtcdQuota}
			}
		}
		messages = append(messages, message)
	}
	return messages
}

// alive returns a function that reports whether a node of a name is registered, with
// metadata or as a witness.
func alive(nodes []promote.NodeInfo, witnesses []promote.Witness) func(name string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(nodes, func(other promote.NodeInfo) bool { return other.ID == name }) ||
			slices.ContainsFunc(witnesses, func(other promote.Witness) bool { return other.ID == name })
	}
}

// watchMembers logs which members of the nodes' own etcd are away, by a look at which nodes
// are registered.
func (n *clusterNode) watchMembers(ctx context.Context, nodes []promote.NodeInfo) {
	if !n.app.cfg.HA.Members() {
		return
	}
	list, err := members.List(ctx, n.members)
	witnesses, err2 := n.Witnesses(ctx)
	if errors.Join(err, err2) != nil {
		return // as before, until etcd answers
	}
	outcome := make(map[string]error, len(list))
	for _, m := range list {
		switch {
		case m.Learner: // it has no vote that could be missing, and may be catching up
		case alive(nodes, witnesses)(m.Name):
			outcome[m.Name] = nil
		default:
			outcome[m.Name] = errNotRegistered
		}
	}
	n.away.look(outcome, n.app.clock())
}

var errNotRegistered = errors.New("its node is not registered")

// memberWarnings says which members are away, and whether the loss of one more would stop
// the cluster. A single member is no cause for that: a cluster begins with one.
func memberWarnings(list []members.Member, alive func(name string) bool) (warnings []string) {
	var away []string
	for _, m := range list {
		switch {
		case alive(m.Name):
		case m.Learner:
			warnings = append(warnings, fmt.Sprintf("no other node can join: the member of etcd at %s has no vote yet, and its node does not run; start it, or: masterctl member remove --yes %s",
				m.PeerURL, cmp.Or(m.Name, m.PeerURL)))
		default:
			away = append(away, m.Name)
		}
	}
	voters, spare := members.Spare(list, alive)
	switch {
	case voters < 2 || spare > 0 && len(away) == 0:
		return warnings
	case spare > 0:
		return append(warnings, fmt.Sprintf("of %d members of etcd that vote, %s are away, and the loss of %d more is survived; start them, or replace them (masterctl member replace --yes NAME)",
			voters, strings.Join(away, ", "), spare))
	case len(away) > 0:
		return append(warnings, fmt.Sprintf("no further loss is survived: of %d members of etcd that vote, %s are away; start them, or replace them (masterctl member replace --yes NAME)",
			voters, strings.Join(away, ", ")))
	}
	return append(warnings, fmt.Sprintf("no loss is survived: etcd has %d members that vote, and needs both; let a third node join", voters))
}
