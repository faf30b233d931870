package conformance_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
)

// A row is something that clients of the C++ master ask for besides the lines. It
// runs over Mooncake's protocol in each generation, or names tests that show it: those
// of overProtocol do so in each generation that has the call, others show what is no call.
type row struct {
	what  string
	run   func(w *world)
	shown []string
}

var rows = []row{
	{what: "upserts and their batches", shown: []string{"internal/mooncake/mooncakeserver/TestUpserts", "internal/mooncake/mooncakeserver/TestUpsertBatches"}},
	{what: "copies, moves and their tasks", shown: []string{"internal/mooncake/mooncakeserver/TestCopiesAndMoves", "internal/mooncake/mooncakeserver/TestTasks"}},
	{what: "dynamic replica copies", shown: []string{"internal/mooncake/mooncakeserver/TestDynamicReplication", "internal/mooncake/mooncakeserver/TestDynamicCopies"}},
	{what: "BatchQueryIp, BatchReplicaClear and FetchTasks of nothing; status of segments; graceful unmount", shown: []string{
		"internal/mooncake/mooncakeserver/TestClients", "internal/mooncake/mooncakeserver/TestClearing",
	}},
	{what: "quota_bytes reaches clients, who say which files they have deleted", shown: []string{
		"internal/mooncake/mooncakeserver/TestDiskReplicas", "internal/mooncake/mooncakeserver/TestEvictDiskReplica",
	}},
	{what: "capacities of SSDs, PollRemoveAll, UnmountLocalDiskSegment", shown: []string{"internal/mooncake/mooncakeserver/TestLocalDisk"}},
	{what: "promotions from an SSD", shown: []string{"internal/mooncake/mooncakeserver/TestPromotion"}},
	{what: "tenants", shown: []string{"internal/mooncake/mooncakeserver/TestTenants", "internal/mooncake/mooncakeserver/TestTenantsAreOff"}},
	{what: "groups, and soft pins of no time", shown: []string{"internal/mooncake/mooncakeserver/TestPutConfig", "internal/mooncake/mooncakeserver/TestUpsertsOfGroups"}},
	{what: "a hanging primary: a client whose ping waits loses nothing", shown: []string{"lab/drill/TestHangingPrimaryOverMooncake"}},
	{what: "SIGKILL, with etcd discovery and --forward; SIGTERM", shown: []string{"lab/drill/TestKilledPrimaryOverMooncake", "internal/app/TestMooncakeClients"}},
	{what: "remove_all leaves no file behind", shown: []string{"internal/httpapi/TestRemoveAll", "internal/mooncake/mooncakeserver/TestLocalDisk"}},
	{what: "every call has an answer of its type", shown: []string{"internal/mooncake/mooncakeserver/TestEveryFunction"}},
	{what: "a client that slept for exactly its lease removes the object", run: func(w *world) {
		w.put("k")
		w.get("k", errs.OK)
		w.code("Remove", w.Remove("k", false), errs.ObjectHasLease)
		w.pass(ttl)
		w.code("Remove", w.Remove("k", false), errs.OK)
		start(w, "k", memory/2, errs.OK)
	}},
	{what: "keys of 64 KiB", run: func(w *world) {
		for _, length := range []int{4097, 65_536} {
			key := strings.Repeat("k", length)
			w.put(key)
			w.get(key, errs.OK)
			if found, _ := w.Exist(key); !found {
				w.Errorf("a key of %d bytes: got it not found, want it there after its put", length)
			}
			w.code("Remove", w.Remove(key, true), errs.OK)
		}
		_, code := w.PutStart(1, strings.Repeat("k", 65_537), 100, one)
		w.code("PutStart", code, errs.InvalidKey)
	}},
	{what: "drain jobs over HTTP", shown: []string{"internal/httpapi/TestDrainJobs"}},
	{what: "HTTP paths and their answers", shown: []string{
		"internal/httpapi/TestQueryKey", "internal/httpapi/TestBatchQueryKeys", "internal/httpapi/TestSegments", "internal/httpapi/TestSegmentStatus",
		"internal/httpapi/TestRemoveAll", "internal/httpapi/TestTenantQuotas", "internal/httpapi/TestHealthAndRole", "internal/httpapi/TestRolesOfUpstream",
	}},
	{what: "the start line of the guides, all flags and files", shown: []string{
		"internal/config/TestStartLineOfMooncakesGuides", "internal/config/TestEveryFlagOfMooncake", "internal/config/TestMooncakesOwnFiles",
	}},
	{what: "metrics of the dashboard", shown: []string{"docs/TestEveryUpstreamMetricIsShownOrExplained"}},
}

// overProtocol matches the tests over Mooncake's protocol, everyGeneration what those say
// that run in each generation.
var (
	overProtocol    = regexp.MustCompile(`^(internal/mooncake/mooncakeserver|lab/drill)/|^internal/app/TestMooncake`)
	everyGeneration = regexp.MustCompile(`\t(each\(t, |for .* := range mooncake\.Names\(\))`)
)

func TestRows(t *testing.T) {
	for _, r := range rows {
		t.Run(r.what, func(t *testing.T) {
			if (r.run == nil) == (len(r.shown) == 0) {
				t.Error("want a test, here or elsewhere")
			}
			for _, test := range r.shown {
				_, source, ok := declared(t, test)
				if !ok {
					t.Errorf("got no test %s, want one that exists", test)
				}
				if ok && overProtocol.MatchString(test) && !everyGeneration.MatchString(source) {
					t.Errorf("test %s: got it not in each generation, want all of them run", test)
				}
			}
			if r.run == nil {
				return
			}
			for _, name := range mooncake.Names() {
				t.Run(name, func(t *testing.T) { r.run(newWorld(t, name, memory, evictionDefaults)) })
			}
		})
	}
}
