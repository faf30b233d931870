package app

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/internal/etcd/members"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// lookTimeout bounds the reads of etcd for a status. Callers wait little longer
// (masterctl 3 s), and want an answer also while etcd is unavailable.
const lookTimeout = 2 * time.Second

// A view is the state of the cluster in etcd.
type view struct {
	head              journal.Cursor
	nodes             []promote.NodeInfo
	complete          []string // other nodes that are listed as complete
	witnesses         []promote.Witness
	members           []members.Member // of the nodes' own etcd
	answering         map[string]bool  // of these, if no majority answers; else nil
	headErr, nodesErr error
	size, quota       uint64 // of etcd's database
	etcd              etcdSays
	paused            time.Duration // for how long automatic takeover is still paused; 0 if it is not
}

// look reads from etcd, concurrently, what a status shows.
func (n *clusterNode) look(ctx context.Context) view {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var v view
	var asks sync.WaitGroup
	asks.Go(func() { v.head, v.headErr = n.reader.Head(ctx) })
	asks.Go(func() { v.nodes, v.nodesErr = n.Nodes(ctx) })
	asks.Go(func() { v.complete, _ = n.CompleteNodes(ctx) }) // if that fails, so does Nodes, whose error is shown
	asks.Go(func() {
		v.size, v.quota = n.etcd.sizes(ctx)
		v.etcd = n.etcd.says()
	})
	if n.app.cfg.HA.Members() {
		asks.Go(func() { v.witnesses, _ = n.Witnesses(ctx) })
		asks.Go(func() { v.members, v.answering = n.listMembers(ctx) })
	}
	asks.Go(func() { v.paused, _ = n.Paused(ctx) })
	asks.Wait()
	return v
}

// Status returns the status of the node and its cluster within little more than lookTimeout.
func (n *clusterNode) Status(ctx context.Context) (*pb.StatusResponse, error) {
	v := n.looks.share(ctx, n.look)
	s := n.promoteStatus() // after the wait for etcd: the role may have changed
	at, stats := s.Position, metadata.Stats{}
	if store := n.Store(); store != nil {
		at, stats = store.Figures()
		s.Self.Applied = at.Seq
	}
	head := s.Head
	// The head in etcd counts, unless this node has committed more meanwhile.
	if v.headErr == nil && v.head.Head.After(head) {
		head = v.head.Head
	}
	if v.headErr == nil {
		entries, behind := head.Lag(at)
		s.Self.Lag, s.Self.LagMillis = entries, behind.Milliseconds()
	}
	st := &pb.StatusResponse{Node: nodeMessage(s.Self), State: stateMessage(at, stats), Journal: n.journalMessage(head, s, v)}
	st.State.StartedEmpty = s.Empty
	st.Node.TakeoverChanges = takeoverChanges(s.Self, s, v.nodes)
	if s.Obstacle != nil {
		st.NotServingReason, st.NotServingHelp = s.Obstacle.Reason, s.Obstacle.Help
	}
	// A node that is fenced or hands over is still the elected one, but serves nobody.
	if l := s.Leader; l.State == promote.Serving && (l.NodeID != n.ID || s.Self.Role == promote.Primary) {
		st.LeaderNodeId, st.LeaderAddress = l.NodeID, l.RPC
	}
	for _, other := range v.nodes {
		if other.ID == n.ID { // its current status, not the registered one
			other = s.Self
		}
		m := nodeMessage(other)
		m.TakeoverChanges = takeoverChanges(other, s, v.nodes)
		st.Nodes = append(st.Nodes, m)
	}
	if s.Founded != "" {
		st.Notes = append(st.Notes, s.Founded)
	}
	switch {
	case v.nodesErr != nil:
		st.TakeoverBlockedReason = etcdFails(v.nodesErr)
	case n.etcd.full.Load():
		st.TakeoverBlockedReason = "etcd is full (NOSPACE)"
	case v.paused > 0:
		st.TakeoverBlockedReason = "automatic takeover is paused"
	}
	st.Notes = append(st.Notes, n.notes(st, v.nodes)...)
	st.Warnings = n.allWarnings(st, s, v)
	return st, nil
}

func etcdFails(err error) string {
	if etcdclient.Refuses(err) {
		return "etcd refuses this node's calls"
	}
	return "etcd does not answer"
}

// journalMessage returns what a status says of the journal, which stands at a head.
func (n *clusterNode) journalMessage(head journal.Head, s promote.Status, v view) *pb.JournalStatus {
	j := &pb.JournalStatus{
		CommittedSequence: uint64(head.Seq), HeadTerm: uint64(head.Term), History: string(s.Head.History),
		LastSnapshotReason: string(s.LastLoad), Complete: s.Complete, Restored: s.Restored, Forked: s.Forked, Lapsed: s.Lapsed, Unread: s.Unread,
		EtcdBytes: v.size, EtcdQuotaBytes: v.quota, EtcdEndpoints: n.etcd.members, EtcdMembers: v.memberMessages(),
		EtcdVersions: v.etcd.versions, EtcdAlarms: v.etcd.alarms, EtcdAnswerUs: uint64(v.etcd.longest.Microseconds()),
	}
	if s.Loss.Err != nil {
		j.Lost = s.Loss.Err.Cause
	}
	for _, count := range s.Loads {
		j.SnapshotLoads += uint64(count)
	}
	return j
}

func (n *clusterNode) allWarnings(st *pb.StatusResponse, s promote.Status, v view) (list []string) {
	if err := v.nodesErr; err != nil { // not headErr: etcd may answer with a head that cannot be read
		list = append(list, etcdFails(err)+": "+etcdclient.Says(err))
	}
	list = append(list, pauseWarnings(v.paused)...)
	if s.MountsHeldFor > n.app.params().HoldTime() {
		list = append(list, fmt.Sprintf("mounted memory is given out only in %v, and so is memory that is freed, since writers that began before the empty start, "+
			"or before the journal was founded anew, may still write to it: puts may find no memory until then; "+
			"an empty start that is told that there are none (--no-writers) does not wait",
			s.MountsHeldFor.Round(time.Second)))
	}
	list = append(list, n.warnings(st, v.nodesErr == nil)...)
	if v.nodesErr == nil {
		list = append(list, memberWarnings(v.members, alive(v.nodes, v.witnesses))...)
		list = append(list, awayWarnings(v.complete, v.members, alive(v.nodes, v.witnesses))...)
		list = append(list, n.etcd.endpointWarnings()...)
	}
	if !n.app.cfg.HA.Embedded() {
		list = append(list, quotaWarnings(v.size, v.quota)...)
	}
	return slices.Concat(list, n.app.silenceWarnings(), savingWarnings(s, v.nodes), spaceWarnings(s, v.nodes), settingWarnings(s, v.nodes))
}

// notes returns what an operator should know though nothing is wrong.
func (n *clusterNode) notes(st *pb.StatusResponse, nodes []promote.NodeInfo) (list []string) {
	cfg := n.app.cfg
	if st.GetState().GetStartedEmpty() {
		list = append(list, "this term started empty: everything cached before it is lost")
	}
	if st.GetNode().GetRole() == pb.Role_ROLE_PRIMARY && !cfg.HA.Embedded() && cfg.Journal.Compact == config.CompactAuto &&
		!slices.ContainsFunc(nodes, func(other promote.NodeInfo) bool { return other.MakesSpace }) {
		list = append(list, fmt.Sprintf("etcd is not embedded, so this cluster does not compact it: run etcd with "+
			"--auto-compaction-mode=periodic --auto-compaction-retention=%s, or set --journal-compact=on if nobody else needs its history",
			cfg.Journal.EventsTTL))
	}
	return list
}

// warnings returns what is wrong with taking over. Without an answer of etcd the
// other nodes are unknown.
func (n *clusterNode) warnings(st *pb.StatusResponse, nodesKnown bool) (list []string) {
	if st.GetNode().GetRole() == pb.Role_ROLE_STANDBY && !st.GetNode().GetPromotable() {
		list = append(list, "this node cannot take over: "+st.GetNode().GetNotPromotableReason())
		list = append(list, n.peers.warnings()...)
	}
	promotable := 0
	for _, other := range st.GetNodes() {
		if other.GetPromotable() && other.GetNodeId() != st.GetLeaderNodeId() {
			promotable++
		}
	}
	if nodesKnown && st.GetLeaderNodeId() != "" && promotable == 0 {
		list = append(list, "no standby could take over now: start one, or wait until it is promotable")
	}
	return list
}

// silenceWarnings says how many silent clients are kept only because many are silent at once.
func (a *App) silenceWarnings() []string {
	m, err := a.gate.Master()
	if err != nil || m.Liveness.Held() == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d clients are silent beyond --client_ttl; as so many are silent at once, they expire slowly, "+
		"a tenth of the memory at a time: look at the network between this node and them", m.Liveness.Held())}
}

func pauseWarnings(left time.Duration) []string {
	if left == 0 {
		return nil
	}
	return []string{fmt.Sprintf("automatic takeover is paused for another %v: if the primary dies, no other node serves until then, or until masterctl resume", left.Round(time.Second))}
}

// savingWarnings says what would be lost if all nodes were restarted.
func savingWarnings(s promote.Status, nodes []promote.NodeInfo) (list []string) {
	if s.Saving.Fault != nil {
		list = append(list, fmt.Sprintf("this node's state cannot be saved: %v; see that --state-dir=%s can be written and has space",
			s.Saving.Fault, s.Saving.Dir))
	}
	restorable := func(n promote.NodeInfo) bool { return n.Restorable || n.ID == s.Self.ID && s.Self.Restorable }
	if len(nodes) > 0 && s.Head.Seq > 0 && !slices.ContainsFunc(nodes, restorable) {
		list = append(list, "a restart of all nodes would lose what is cached: the journal reaches back to no node's state file; "+
			"see that state files are saved, that --journal-max-bytes keeps enough, and that nobody deletes its records in etcd")
	}
	return list
}

// spaceWarnings says that changes are refused since an embedded etcd is nearly full, and
// why it stays so.
func spaceWarnings(s promote.Status, nodes []promote.NodeInfo) []string {
	full := func(n promote.NodeInfo) bool { return n.EtcdFull }
	switch {
	case s.Self.EtcdFull && s.Space.Fault != nil:
		return []string{fmt.Sprintf("etcd is nearly full, so changes are refused, and its history is still needed: %v", s.Space.Fault)}
	case s.Self.EtcdFull || slices.ContainsFunc(nodes, full):
		return []string{"etcd is nearly full, so changes are refused: if that lasts, raise --etcd-quota-bytes or lower --journal-max-bytes"}
	}
	return nil
}

func stateMessage(at metadata.Position, stats metadata.Stats) *pb.StateStatus {
	return &pb.StateStatus{
		Term: uint64(at.Term), Sequence: uint64(at.Seq), ClusterTimeMs: int64(at.Time), Digest: at.Digest.String(),
		Objects: uint64(stats.Objects), Segments: uint64(stats.Segments), CapacityBytes: stats.Capacity, UsedBytes: stats.Busy,
		QuarantinedBytes: stats.Quarantined, Evicted: uint64(stats.Evicted),
	}
}

func nodeMessage(n promote.NodeInfo) *pb.Node {
	m := &pb.Node{
		NodeId: n.ID, Role: roles[n.Role], RpcAddress: n.RPC, HttpAddress: n.HTTP, Version: n.Version, AppliedSequence: uint64(n.Applied),
		LagEntries: n.Lag, LagMs: uint64(max(0, n.LagMillis)), Promotable: n.Promotable, NotPromotableReason: n.Why,
	}
	for f := n.Formats[0]; f <= n.Formats[1]; f++ {
		m.Formats = append(m.Formats, uint32(f))
	}
	return m
}

var roles = map[promote.Role]pb.Role{
	promote.Standby: pb.Role_ROLE_STANDBY, promote.Electing: pb.Role_ROLE_ELECTING, promote.Promoting: pb.Role_ROLE_PROMOTING,
	promote.Primary: pb.Role_ROLE_PRIMARY, promote.HandingOver: pb.Role_ROLE_HANDING_OVER, promote.Fenced: pb.Role_ROLE_FENCED,
	promote.Stopping: pb.Role_ROLE_STOPPING,
}
