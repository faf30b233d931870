package app

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
)

// While all others are down, a node with --join founds no etcd, whichever other flag it has and
// whatever it lost; nor does a member that has its data. They wait.
func TestNobodyFoundsBesideMembersThatAreAway(t *testing.T) {
	t.Parallel() // it waits, for connections of etcd that are 5 s old
	first := machine(t, "a")
	a := run(t, first)
	a.serves()
	second := machine(t, "b", a)
	b := run(t, second)
	b.promotable()
	a.voters(2)
	b.end()
	a.end()

	founds := machine(t, "c", a)
	founds.Role, founds.HA.ClusterInit = config.Primary, true
	for name, c := range map[string]config.Config{"--join": machine(t, "c", a), "--join and --cluster-init": founds} {
		n := run(t, c)
		n.waits(waitsToJoin + ": " + a.RPCAddress())
		n.end()
		if etcdserver.HasData(filepath.Join(n.cfg.Node.DataDir, "etcd")) {
			t.Errorf("%s, all members away: got an etcd founded, want that the node waits to join", name)
		}
	}
	second.Role, second.HA.ClusterInit, second.HA.Join = config.Primary, true, nil
	for name, c := range map[string]config.Config{"the founder": first, "one that joined": second} {
		n := run(t, c)
		n.waits("more than half of them must run")
		n.end()
		if strings.Contains(n.log.String(), waitsToJoin) {
			t.Errorf("%s, with its data and --cluster-init: got that it asks to join, want that it waits for the other members", name)
		}
	}
}
