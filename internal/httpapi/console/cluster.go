package console

import (
	"context"
	"net/http"
	"strings"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/httpapi"
)

// A Member is one of etcd's, as it answered.
type Member struct {
	Endpoint string
	Name     string
	Version  string
	Leader   bool
	Learner  bool
	Witness  bool     // its node has no metadata, and has reported the size when that last changed
	ByNode   bool     // its node was asked about it, which takes longer
	Size     uint64   // bytes of its database
	InUse    uint64   // of Size; 0 if it is not known
	Quota    uint64   // 0 if it is not known
	Alarms   []string // and other complaints
	Took     time.Duration
	Fault    string // why it did not answer
}

type clusterView struct {
	*pb.StatusResponse
	Self    string
	Members []Member
	Targets []string // standbys that could take over
	Term    uint64   // in which this node serves and could hand over; else 0
	Orders  string   // where orders go; empty if the caller may give none
	scheme  string   // of other nodes' pages
}

// Preflight says what a handover to a node would meet, and what it would change.
func (v clusterView) Preflight(n *pb.Node) string {
	say := []string{n.GetNodeId() + " can take over"}
	switch {
	case !n.GetPromotable():
		say[0] = n.GetNodeId() + " cannot take over: " + n.GetNotPromotableReason()
	case n.GetLagEntries() == 0:
		say[0] += ", and lacks nothing"
	default:
		say[0] += ", and is " + lag(n) + " behind"
	}
	if len(n.GetTakeoverChanges()) == 0 {
		return say[0] + "; no setting would change."
	}
	return strings.Join(append(say, n.GetTakeoverChanges()...), "; ") + "."
}

func lag(n *pb.Node) string {
	text := countText(n.GetLagEntries()) + " commits"
	if n.GetLagEntries() == 1 {
		text = "1 commit"
	}
	if ms := n.GetLagMs(); ms > 0 {
		text += ", " + lasted(time.Duration(ms)*time.Millisecond)
	}
	return text
}

// Page is this page of another node.
func (v clusterView) Page(address string) string { return v.scheme + address + "/console/cluster" }

func (c *console) cluster(r *http.Request) (any, error) {
	status, err := c.status.get(r.Context(), c.Now, c.Node.Status)
	v := clusterView{StatusResponse: status, Self: c.Brief().NodeID, scheme: scheme(r)}
	if httpapi.MayOrder(r.Context()) {
		v.Orders = httpapi.AdminPath
	}
	if m, err := c.Gate.Master(); err == nil && status.GetJournal() != nil {
		v.Term = uint64(m.Term)
	}
	if c.Members != nil {
		v.Members, _ = c.members.get(r.Context(), c.Now, func(ctx context.Context) ([]Member, error) { return c.Members(ctx), nil })
	}
	for _, n := range status.GetNodes() {
		if n.GetPromotable() && n.GetRole() == pb.Role_ROLE_STANDBY {
			v.Targets = append(v.Targets, n.GetNodeId())
		}
	}
	return v, err
}

// role writes a role as the other commands do.
func role(r pb.Role) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(r.String(), "ROLE_")), "_", "-")
}
