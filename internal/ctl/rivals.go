package ctl

import (
	"fmt"
	"slices"
	"strings"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// A rivalry is something of which a cluster must have one, such as a primary, and has several.
type rivalry struct {
	check string   // the name of doctor's check
	nodes []string // ids of the nodes that have it
	text  string
}

const rivalryHelp = "look again, as it may pass while one takes over; if it stays, the nodes use different etcds: give all the same --etcd_endpoints (or --join), or clusters of their own another --cluster-id"

// rivalries returns the rivalries: several primaries, or several journals.
func (ns nodes) rivalries() (list []rivalry) {
	if serving := ns.serving(); len(serving) > 1 {
		list = append(list, rivalryOf("primary", serving, fmt.Sprintf("%d nodes serve: ", len(serving)), func(n *node) string {
			return fmt.Sprintf("at %s in term %d", n.address, n.status.GetHeader().GetTerm())
		}))
	}
	history := func(n *node) string { return n.status.GetJournal().GetHistory() }
	journals := slices.DeleteFunc(ns.answering(), func(n *node) bool { return history(n) == "" })
	if slices.ContainsFunc(journals, func(n *node) bool { return history(n) != history(journals[0]) }) {
		list = append(list, rivalryOf("journal", journals, "the states of these nodes come from different journals: ", func(n *node) string { return "from " + history(n) }))
	}
	return list
}

func rivalryOf(check string, of nodes, text string, has func(*node) string) rivalry {
	r := rivalry{check: check}
	var each []string
	for _, n := range of {
		r.nodes, each = append(r.nodes, n.id), append(each, n.id+" "+has(n))
	}
	r.text = text + strings.Join(each, ", ")
	return r
}

func (ns nodes) serving() nodes {
	return slices.DeleteFunc(ns.answering(), func(n *node) bool { return n.status.GetNode().GetRole() != pb.Role_ROLE_PRIMARY })
}
