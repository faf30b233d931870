package etcdserver

import (
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// wasMember is how etcd refuses a member that is known to the others and has
// lost its data.
const wasMember = "has already been bootstrapped"

// checkMembers refuses what etcd would take without a word: it goes by the
// members that stand in the data directory, whatever the configuration says.
//
// A member of a cluster that is started as a lone one has no peer port, so it
// waits for a leader for ever. A lone member that is started with others serves
// by itself, and nobody has a copy of its data.
func checkMembers(c Member, stored []*membership.Member) error {
	lone := len(stored) == 1 && slices.Equal(stored[0].PeerURLs, []string{lonePeerURL})
	switch {
	case c.lone() && len(stored) > 1:
		var urls []string
		for _, m := range stored {
			urls = append(urls, m.PeerURLs...)
		}
		slices.Sort(urls)
		return fmt.Errorf("%s has the data of one of %d members (%s): give the initial cluster as at its first start, or choose another data directory",
			c.DataDir, len(stored), strings.Join(urls, ", "))
	case lone && len(c.InitialCluster) > 1:
		return fmt.Errorf("%s has the data of a lone member, which others cannot join: leave out the initial cluster, or choose another data directory", c.DataDir)
	}
	return nil
}
