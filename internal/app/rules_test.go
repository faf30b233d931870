package app

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/metadata"
)

// Newer rules wait for the last node of an older version, which does not report
// them.
func TestRulesWaitForOlderNodes(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t)
	etcd := cluster.Client(t)
	const older = "/understudy/mooncake_cluster/nodes/older"
	lease, err := etcd.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Put(t.Context(), older, `{"node_id":"older","role":"standby","formats":[1,1]}`, clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	a := run(t, settings(config.Primary, "a", cluster.Endpoints()))
	a.serves()
	known := func() metadata.Rules {
		t.Helper()
		rules, err := a.node.knownRules(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return rules
	}
	if got := known(); got != metadata.FirstRules {
		t.Errorf("rules %d are known beside a node of an older version, want %d", got, metadata.FirstRules)
	}
	if _, err := etcd.Delete(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	if got := known(); got != metadata.NewestRules {
		t.Errorf("rules %d are known without it, want %d", got, metadata.NewestRules)
	}
	a.until("has raised the rules", func(*pb.StatusResponse) bool { return a.node.Store().Rules() == metadata.NewestRules })
	b := run(t, settings(config.Standby, "b", cluster.Endpoints()))
	b.promotable()
	if got := b.node.Store().Rules(); got != metadata.NewestRules {
		t.Errorf("the standby has rules %d, want %d", got, metadata.NewestRules)
	}
	same(t, a, b)
}
