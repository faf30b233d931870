package ctl

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

type statusResult struct {
	ClusterID string           `json:"cluster_id"`
	Leader    *leaderResult    `json:"leader"` // null if no node serves
	Nodes     []nodeResult     `json:"nodes"`
	Witnesses []witnessResult  `json:"witnesses,omitempty"`
	Obstacles []obstacleResult `json:"obstacles,omitempty"`
	Warnings  []remarkResult   `json:"warnings,omitempty"` // what is wrong
	Notes     []remarkResult   `json:"notes,omitempty"`    // what to know although nothing is wrong
}

// A witnessResult is a node that runs a member of etcd and holds no metadata. etcd lists it
// while it runs.
type witnessResult struct {
	NodeID      string `json:"node_id"`
	HTTPAddress string `json:"http_address"`
	Version     string `json:"version"`
	Votes       bool   `json:"votes"`
	EtcdBytes   uint64 `json:"etcd_bytes"`
	EtcdQuota   uint64 `json:"etcd_quota_bytes"`
}

// An obstacleResult is why no node serves, as far as a node knows.
type obstacleResult struct {
	NodeID string `json:"node_id"`
	Reason string `json:"reason"`
	Help   string `json:"help,omitempty"` // what an operator can do
}

type leaderResult struct {
	NodeID  string `json:"node_id"`
	Address string `json:"address"`
	Term    uint64 `json:"term"`
}

// A remarkResult is a warning or a note of a node.
type remarkResult struct {
	NodeID string `json:"node_id"`
	Text   string `json:"text"`
}

// A nodeResult is the status of a node. For a node that did not answer it has only the
// address and an error.
type nodeResult struct {
	NodeID        string   `json:"node_id,omitempty"`
	Address       string   `json:"address"`
	HTTPAddress   string   `json:"http_address,omitempty"`
	Version       string   `json:"version,omitempty"`
	Role          string   `json:"role,omitempty"`
	Term          uint64   `json:"term"`
	Sequence      uint64   `json:"sequence"`
	Digest        string   `json:"digest,omitempty"` // of the state at the sequence
	LagEntries    uint64   `json:"lag_entries"`
	LagMillis     uint64   `json:"lag_ms"`
	Promotable    bool     `json:"promotable"`
	NotPromotable string   `json:"not_promotable_reason,omitempty"`
	Blocked       string   `json:"takeover_blocked_reason,omitempty"`
	Changes       []string `json:"takeover_changes,omitempty"` // settings that would change if it became the primary
	StartedEmpty  bool     `json:"started_empty,omitempty"`
	Objects       uint64   `json:"objects"`
	Segments      uint64   `json:"segments"`
	Capacity      uint64   `json:"capacity_bytes"`
	Used          uint64   `json:"used_bytes"` // by objects and reservations, without what is in quarantine
	Quarantined   uint64   `json:"quarantined_bytes"`
	Committed     uint64   `json:"committed_sequence,omitempty"` // newest in the journal, as far as the node knows
	EtcdBytes     uint64   `json:"etcd_bytes,omitempty"`
	EtcdQuota     uint64   `json:"etcd_quota_bytes,omitempty"`
	SnapshotLoads uint64   `json:"snapshot_loads"`
	Error         string   `json:"error,omitempty"`
	Refused       bool     `json:"refused,omitempty"` // the node answered that the caller is unknown or lacks a role
	answered      bool     // by somebody, if there is an error
}

func (f *Flags) statusCommand() *cobra.Command {
	var interval time.Duration
	var rounds uint
	watch := false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print the status of all nodes",
		Long: `Asks every node that can be found, and prints its role, term, sequence, lag and
digest, and whether it could take over. Nodes are found at --address, in etcd, and
by what other nodes know. One that does not answer is shown as such.

It exits with 0 if all is well, with 1 if something is wrong though a node serves
(a node that does not answer or could not take over, or a warning), and with 2 if
no node serves, or none answers. With --watch it goes on until Ctrl-C.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			once := func(ctx context.Context) error { return f.status(ctx, cmd) }
			switch {
			case watch:
				return f.Repeat(cmd, interval, rounds, once)
			case cmd.Flags().Changed("interval") || cmd.Flags().Changed("count"):
				return cli.Misusef("--interval and --count need --watch")
			}
			return f.Run(cmd, once)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print it again and again")
	bindRepeat(cmd, &interval, &rounds)
	return cmd
}

func (f *Flags) status(ctx context.Context, cmd *cobra.Command) error {
	all, err := f.survey(ctx)
	defer all.close()
	if len(all) == 0 {
		return noneServes(err)
	}
	result := statusOf(f.clusterID, all)
	if err := f.Print(cmd, result, func(w io.Writer) { statusTable(w, &result) }); err != nil {
		return err
	}
	return result.verdict(err)
}

// noneServes ends a command with status 2, which monitoring systems take for critical, since
// no node serves.
func noneServes(err error) error {
	const critical = 2
	return cli.WithStatus(critical, err)
}

// verdict ends the command with the exit status that its help promises.
func (s *statusResult) verdict(err error) error {
	impaired := func(n nodeResult) bool {
		return n.Error != "" || !n.Promotable && n.Role != roleName(pb.Role_ROLE_PRIMARY)
	}
	switch {
	case s.Leader == nil:
		return noneServes(err)
	case err != nil || len(s.Warnings) > 0 || slices.ContainsFunc(s.Nodes, impaired):
		return cli.WithStatus(cli.StatusFailed, err)
	}
	return nil
}

func statusOf(clusterID string, all nodes) statusResult {
	result := statusResult{ClusterID: clusterID, Witnesses: all.witnesses()}
	if p := all.primary(); p != nil {
		result.Leader = &leaderResult{p.id, p.status.GetNode().GetRpcAddress(), p.status.GetHeader().GetTerm()}
	}
	for _, n := range all {
		result.Nodes = append(result.Nodes, nodeOf(n))
		if reason := n.status.GetNotServingReason(); reason != "" && result.Leader == nil {
			o := obstacleResult{n.id, reason, n.status.GetNotServingHelp()}
			if last := len(result.Nodes) - 1; result.Nodes[last].isElected() { // it knows best
				result.Obstacles = slices.Insert(result.Obstacles, 0, o)
			} else {
				result.Obstacles = append(result.Obstacles, o)
			}
		}
		for _, text := range n.status.GetWarnings() {
			result.Warnings = append(result.Warnings, remarkResult{n.id, text})
		}
		for _, text := range n.status.GetNotes() {
			result.Notes = append(result.Notes, remarkResult{n.id, text})
		}
	}
	if result.Leader == nil && len(result.Obstacles) == 0 {
		result.Obstacles = all.silentPrimary()
	}
	if len(all.answering()) > 0 {
		if n := all.best(); heldBack(n.status.GetState()) {
			text, _ := memoryUse(n.status.GetState())
			result.Warnings = append(result.Warnings, remarkResult{n.id, text + "; " + heldBackHelp})
		}
	}
	for _, r := range all.rivalries() {
		for _, id := range r.nodes {
			result.Warnings = append(result.Warnings, remarkResult{id, r.text + "; " + rivalryHelp})
		}
	}
	return result
}

// silentPrimary says which nodes know a primary, if that does not answer.
func (ns nodes) silentPrimary() (list []obstacleResult) {
	for _, n := range ns.answering() {
		at := n.status.GetLeaderAddress()
		if at != "" && !slices.ContainsFunc(ns, func(o *node) bool { return o.address == at && o.answered }) {
			list = append(list, obstacleResult{
				n.id, n.status.GetLeaderNodeId() + " is the primary, as far as is known, and does not answer at " + at,
				"if it runs, correct its --advertise-address; if it has just died, another node takes over within seconds: look again then",
			})
		}
	}
	return list
}

func nodeOf(n *node) nodeResult {
	if n.status == nil {
		return nodeResult{NodeID: n.id, Address: n.address, Refused: n.refuses(), Error: rpcerr.Cause(n.address, n.err), answered: n.answered}
	}
	self, state, journal := n.status.GetNode(), n.status.GetState(), n.status.GetJournal()
	return nodeResult{
		NodeID: n.id, Address: self.GetRpcAddress(), HTTPAddress: self.GetHttpAddress(), Version: self.GetVersion(),
		Role: roleName(self.GetRole()), Term: n.status.GetHeader().GetTerm(), Sequence: state.GetSequence(), Digest: state.GetDigest(),
		LagEntries: self.GetLagEntries(), LagMillis: self.GetLagMs(),
		Promotable: self.GetPromotable(), NotPromotable: self.GetNotPromotableReason(), Blocked: n.status.GetTakeoverBlockedReason(), Changes: self.GetTakeoverChanges(), StartedEmpty: state.GetStartedEmpty(),
		Objects: state.GetObjects(), Segments: state.GetSegments(), Capacity: state.GetCapacityBytes(), Used: state.GetUsedBytes() - min(state.GetUsedBytes(), state.GetQuarantinedBytes()),
		Quarantined: state.GetQuarantinedBytes(), Committed: journal.GetCommittedSequence(),
		EtcdBytes: journal.GetEtcdBytes(), EtcdQuota: journal.GetEtcdQuotaBytes(), SnapshotLoads: journal.GetSnapshotLoads(),
	}
}

// roleName writes a role in lower case: primary, handing-over.
func roleName(r pb.Role) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(r.String(), "ROLE_")), "_", "-")
}

func statusTable(w io.Writer, s *statusResult) {
	t := cli.NewTable(w, "NODE", "ROLE", "TERM", "SEQUENCE", "LAG", "OBJECTS", "USED", "QUARANTINED", "DIGEST", "ADDRESS", "VERSION", "CAN TAKE OVER")
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Error != "" {
			role, colour := n.silence()
			t.Row(cli.Or(n.NodeID), role, "-", "-", "-", "-", "-", "-", "-", n.Address, "-", n.Error)
			t.Paint(1, colour)
			continue
		}
		takeover, colour := n.takeover()
		takeover = strings.Join(append([]string{takeover}, n.Changes...), "; ")
		t.Row(n.NodeID, n.Role, fmt.Sprint(n.Term), fmt.Sprint(n.Sequence), n.lag(), cli.Count(n.Objects), n.used(), cli.SizeText(n.Quarantined), n.Digest, n.Address, n.Version, takeover)
		t.Paint(11, colour)
	}
	for _, w := range s.Witnesses {
		votes := "never: it votes in etcd"
		if !w.Votes {
			votes = "never: it has no vote in etcd yet"
		}
		t.Row(w.NodeID, "witness", "-", "-", "-", "-", "-", "-", "-", w.HTTPAddress+" (HTTP)", w.Version, votes)
	}
	t.End()
	switch answers := slices.ContainsFunc(s.Nodes, func(n nodeResult) bool { return n.Error == "" }); {
	case s.Leader != nil:
	case !answers:
		fmt.Fprintln(w, "\n"+cli.Bad("No node answers as one of this cluster that has started")+": see above what came back from each.")
	default:
		fmt.Fprintln(w, "\n"+cli.Bad("No node serves."))
		if len(s.Obstacles) == 0 {
			fmt.Fprintln(w, "No node says why yet: if the primary has just died, another one takes over within seconds. Look again then.")
		}
	}
	obstacles(w, s.Obstacles)
	remarks(w, cli.Warn("warning"), s.Warnings)
	remarks(w, "note", s.Notes)
}

// obstacles prints each obstacle once, with the nodes that report it.
func obstacles(w io.Writer, met []obstacleResult) {
	by := map[obstacleResult][]string{}
	var order []obstacleResult
	for _, o := range met {
		id := o.NodeID
		o.NodeID = ""
		if by[o] == nil {
			order = append(order, o)
		}
		by[o] = append(by[o], id)
	}
	for _, o := range order {
		fmt.Fprintf(w, "\nwhy, says %s: %s\n", joined(by[o]), cli.Printable(o.Reason))
		if o.Help != "" {
			fmt.Fprintf(w, "what to do: %s\n", cli.Printable(o.Help))
		}
	}
}

// remarks prints each remark once, with the nodes that report it.
func remarks(w io.Writer, kind string, made []remarkResult) {
	from := map[string][]string{}
	for _, r := range made {
		from[r.Text] = append(from[r.Text], r.NodeID)
	}
	for _, text := range slices.Sorted(maps.Keys(from)) {
		fmt.Fprintf(w, "\n%s of %s: %s\n", kind, joined(from[text]), cli.Printable(text))
	}
}

func joined(names []string) string { return cli.Printable(strings.Join(names, ", ")) }

func (n *nodeResult) lag() string {
	if n.LagEntries == 0 || n.LagMillis == 0 { // a node without a state has no time
		return cli.Count(n.LagEntries)
	}
	return fmt.Sprintf("%s (%v)", cli.Count(n.LagEntries), cli.Millis(n.LagMillis))
}

// used formats the share of memory that objects and reservations take.
func (n *nodeResult) used() string {
	switch {
	case n.Capacity == 0 && n.Segments > 0:
		return "none takes puts" // drained, or being drained
	case n.Capacity == 0:
		return "no memory"
	}
	return fmt.Sprintf("%.1f %% of %s", 100*float64(n.Used)/float64(n.Capacity), cli.SizeText(n.Capacity))
}

// isElected reports whether a node is the elected one, which may also be fenced or handing
// over.
func (n *nodeResult) isElected() bool {
	return slices.Contains([]string{roleName(pb.Role_ROLE_PROMOTING), roleName(pb.Role_ROLE_PRIMARY), roleName(pb.Role_ROLE_HANDING_OVER), roleName(pb.Role_ROLE_FENCED)}, n.Role)
}

// silence is what stands for the role of a node without a status, and its colour.
func (n *nodeResult) silence() (text string, colour func(string) string) {
	switch {
	case n.Refused:
		return "refused", cli.Bad
	case n.answered:
		return "not ready", cli.Warn
	default:
		return "no answer", cli.Bad
	}
}

// takeover says whether a node could take over, with the colour of that.
func (n *nodeResult) takeover() (text string, colour func(string) string) {
	switch {
	case n.Role == roleName(pb.Role_ROLE_PRIMARY):
		return "serves", cli.Good
	case n.isElected():
		return "is elected, and does not serve", cli.Warn
	case n.Promotable && n.Blocked != "":
		return "not by itself: " + n.Blocked, cli.Warn
	case n.Promotable:
		return "yes", cli.Plain
	default:
		return "no: " + cli.Or(n.NotPromotable), cli.Bad
	}
}
