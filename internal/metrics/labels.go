package metrics

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/promote"
)

// LabelValues returns all values that a label of this metric can have, nil for a
// label whose values are not known beforehand, such as a segment's name.
func (f Family) LabelValues(label string) []string {
	switch f.Name + " " + label {
	case "understudy_role role":
		return texts(roles, roleName)
	case "understudy_snapshot_loads_total reason":
		return texts(reasons, func(r journal.Reason) string { return string(r) })
	case "understudy_delete_events_total type":
		return texts(deleteTypes, deleteevents.Type.String)
	case "understudy_commits_refused_total reason":
		return slices.Clone(refusals)
	case "understudy_connections_refused_total of":
		return []string{refusedIdentity, refusedPeer}
	case "understudy_takeover_duration_seconds phase":
		return slices.Sorted(maps.Keys(phases(promote.Takeover{})))
	case "understudy_rpc_duration_seconds code":
		return texts(statusCodes(), codes.Code.String)
	}
	return nil
}

func texts[T any](list []T, text func(T) string) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = text(v)
	}
	return out
}

var roles = []promote.Role{
	promote.Standby, promote.Electing, promote.Promoting, promote.Primary, promote.HandingOver, promote.Fenced, promote.Stopping,
}

func roleName(r promote.Role) string { return strings.ReplaceAll(string(r), " ", "_") }

// reasons are the reasons whose series exist from the start. Otherwise the first load would
// not look like an increase.
var reasons = []journal.Reason{
	journal.ReasonStart, journal.ReasonCompacted, journal.ReasonGap, journal.ReasonCorrupt,
	journal.ReasonDigest, journal.ReasonDifference, journal.ReasonLag, journal.ReasonFounded,
}

var deleteTypes = []deleteevents.Type{
	deleteevents.Remove, deleteevents.RemoveByRegex, deleteevents.RemoveAll, deleteevents.PutRevoke, deleteevents.UnmountSegment, deleteevents.EvictTenant,
}

// Why etcd refused a commit.
const (
	refusedNoSpace  = "no_space"
	refusedTooLarge = "too_large"
	refusedOther    = "other"
)

var refusals = []string{refusedNoSpace, refusedTooLarge, refusedOther}

// Why a connection was closed at once.
const (
	refusedPeer     = "peer"
	refusedIdentity = "identity"
)

func statusCodes() (list []codes.Code) {
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		list = append(list, c)
	}
	return list
}
