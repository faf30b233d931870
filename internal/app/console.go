package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/etcd/members"
	"github.com/understudy-store/understudy/internal/httpapi/console"
	"github.com/understudy-store/understudy/promote"
)

// countsFresh is how long the counts of the primary are taken after this node read them: it reads
// them once a second while etcd answers.
const countsFresh = 5 * time.Second

// counts returns what this node registers of its calls while it is elected.
func (a *App) counts() promote.Counts { return promote.Counts(a.recorder.Counts()) }

// primaryCounts returns the counts of the primary; zero if that is this node, or if none were
// read lately.
func (a *App) primaryCounts(s promote.Status) console.Counts {
	c := s.Counts
	if c.NodeID != s.Leader.NodeID || c.NodeID == s.Self.ID || a.clock()-c.Read > countsFresh {
		return console.Counts{}
	}
	return console.Counts(c.Counts)
}

// reading returns how this node stands now. It asks nobody.
func (a *App) reading() console.Reading {
	s, calls, puts := a.node.promoteStatus(), a.counters.service, a.metrics.Puts()
	read := console.Reading{
		Role: string(s.Self.Role), Term: uint64(max(s.Leader.Term, s.Position.Term)), Primary: s.Leader.NodeID, Serving: a.gate.Serves(),
		Gets: calls.Gets.Load() + calls.ExistMisses.Load(), Hits: calls.ValidGets.Load(), Saves: s.Saving.Saves,
		Puts: console.Latency{Count: puts.Count, Bounds: puts.Bounds, Counts: puts.Counts}, LoadReason: string(s.LastLoad),
		Elected: a.primaryCounts(s),
	}
	for _, n := range s.Loads {
		read.Loads += n
	}
	if s.Obstacle != nil {
		read.Obstacle = s.Obstacle.Reason
	}
	return read
}

func (a *App) console() http.Handler {
	return console.Handler(console.Sources{
		Node: a.node, Brief: a.httpNode, Cluster: a.cfg.HA.ClusterID, Version: a.version, Now: clock.Wall,
		Gate: a.gate, Scans: a.scans, Calls: a.counters.service, Hot: a.hot, Recorder: a.recorder, Log: a.log,
		Evicted: a.evicted, Members: a.etcdMembers(), Settings: a.nodeSettings, Default: defaultOf, Own: a.cfg.YAML(),
	})
}

func (a *App) evicted() console.Evictions {
	e := a.counters.eviction
	return console.Evictions{
		Cutoffs: e.Cutoffs.Load(), Objects: e.Objects.Load(), EvictedBytes: uint64(e.Bytes.Load()),
		Idle: time.Duration(e.Idle.Load()) * time.Millisecond,
	}
}

// nodeSettings returns, for each node, the settings that should be equal on all.
func (a *App) nodeSettings(ctx context.Context) ([]console.NodeSettings, error) {
	s := a.node.promoteStatus()
	s.Self.Settings = shared(a.cfg)
	nodes := []promote.NodeInfo{s.Self}
	if n, ok := a.node.(*clusterNode); ok {
		var err error
		if nodes, err = n.Nodes(ctx); err != nil {
			return nil, fmt.Errorf("etcd does not answer: %w", err)
		}
	}
	var list []console.NodeSettings
	for _, n := range nodes {
		one := console.NodeSettings{NodeID: n.ID, Primary: n.ID == s.Leader.NodeID}
		_ = json.Unmarshal([]byte(n.Settings), &one.Values) // a node of an older version says nothing
		list = append(list, one)
	}
	return list, nil
}

// etcdMembers returns a function that asks etcd's members how they are; nil without etcd.
func (a *App) etcdMembers() func(context.Context) []console.Member {
	n, ok := a.node.(*clusterNode)
	switch {
	case !ok:
		return nil
	case a.cfg.HA.Members():
		return n.ownMembers
	}
	return n.etcd.ask
}

// ownMembers asks the members of the nodes' own etcd how they are. It asks the member of this
// node itself, and the other nodes about theirs, which only they reach.
func (n *clusterNode) ownMembers(ctx context.Context) []console.Member {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	nodes, err := n.Nodes(ctx)
	known, err2 := members.List(ctx, n.members)
	witnesses, err3 := n.Witnesses(ctx)
	if errors.Join(err, err2, err3) != nil {
		return n.etcd.ask(ctx) // a majority is away
	}
	list := make([]console.Member, len(known))
	leader := ""
	var asks errgroup.Group
	asks.SetLimit(sizeAsks)
	for i, m := range known {
		list[i] = console.Member{Name: m.Name, Endpoint: m.PeerURL, Learner: m.Learner, Fault: "its node is not registered"}
		if w := slices.IndexFunc(witnesses, func(w promote.Witness) bool { return w.ID == m.Name }); w >= 0 {
			list[i] = console.Member{Name: m.Name, Endpoint: m.PeerURL, Learner: m.Learner, Witness: true, Size: witnesses[w].EtcdBytes, Quota: witnesses[w].EtcdQuota}
		}
		at := slices.IndexFunc(nodes, func(o promote.NodeInfo) bool { return o.ID == m.Name })
		switch {
		case m.Name == n.ID:
			asks.Go(func() error {
				list[i], leader = n.etcd.own(ctx, list[i])
				return nil
			})
		case at >= 0:
			asks.Go(func() error {
				list[i] = n.askMember(ctx, nodes[at].RPC, list[i])
				return nil
			})
		}
	}
	_ = asks.Wait() // the error of a node is in its entry
	for i := range list {
		list[i].Leader = leader != "" && list[i].Name == leader
	}
	return list
}

func (n *clusterNode) askMember(ctx context.Context, address string, m console.Member) console.Member {
	began := n.etcd.clock()
	st, err := ask(n.peers, address, func(c pb.AdminServiceClient) (*pb.StatusResponse, error) { return c.Status(ctx, &pb.StatusRequest{}) })
	if err != nil {
		m.Fault = err.Error()
		return m
	}
	m.Fault, m.ByNode, m.Took = "", true, n.etcd.clock()-began
	m.Size, m.Quota = st.GetJournal().GetEtcdBytes(), st.GetJournal().GetEtcdQuotaBytes()
	return m
}

// own asks the member of this node, and returns the name of the one that leads.
func (u *etcdUse) own(ctx context.Context, m console.Member) (own console.Member, leader string) {
	m, st := u.member(ctx, u.members[0], m)
	if st == nil {
		return m, ""
	}
	return m, u.names(ctx)[st.Leader]
}

func (u *etcdUse) ask(ctx context.Context) []console.Member {
	ctx, cancel := context.WithTimeout(ctx, sizeTimeout)
	defer cancel()
	list := make([]console.Member, len(u.members))
	var asks errgroup.Group
	asks.SetLimit(sizeAsks)
	var names map[uint64]string
	asks.Go(func() error {
		names = u.names(ctx)
		return nil
	})
	ids := make([]uint64, len(u.members))
	for i, endpoint := range u.members {
		asks.Go(func() error {
			m, st := u.member(ctx, endpoint, console.Member{Endpoint: endpoint})
			if st != nil {
				ids[i] = st.Header.GetMemberId()
				m.Leader, m.Learner = st.Leader == ids[i], st.IsLearner
			}
			list[i] = m
			return nil
		})
	}
	_ = asks.Wait() // the error of a member is in its entry
	for i, id := range ids {
		list[i].Name = names[id]
	}
	return list
}

// member asks one member how it is; the response is nil if the member does not answer.
func (u *etcdUse) member(ctx context.Context, endpoint string, m console.Member) (console.Member, *clientv3.StatusResponse) {
	began := u.clock()
	st, err := u.client.Status(ctx, endpoint)
	m.Took = u.clock() - began
	if err != nil {
		m.Fault = err.Error()
		return m, nil
	}
	m.Fault, m.Version = "", st.Version
	m.Size, m.InUse, m.Quota, m.Alarms = uint64(st.DbSize), uint64(st.DbSizeInUse), uint64(st.DbSizeQuota), st.Errors
	return m, st
}

func (u *etcdUse) names(ctx context.Context) map[uint64]string {
	list, err := u.client.MemberList(ctx)
	if err != nil {
		return nil // they have their endpoints
	}
	names := make(map[uint64]string)
	for _, m := range list.Members {
		names[m.ID] = m.Name
	}
	return names
}
