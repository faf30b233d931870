package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/segment"
)

func TestFiguresOfAPrimary(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.put(1000, "x", "y", "z")
	for _, key := range []string{"x", "x", "nothing"} {
		_, _ = r.master.GetReplicaList(ctx, metadata.DefaultTenant, key)
	}
	if err := r.master.Remove(ctx, service.RemoveRequest{Tenant: metadata.DefaultTenant}, "y"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.master.ExistKey(ctx, metadata.DefaultTenant, "nothing"); err != nil {
		t.Fatal(err)
	}
	_, _, _ = r.master.BatchExistKey(ctx, metadata.DefaultTenant, []string{"z", strings.Repeat("k", metadata.MaxKeyBytes+1)})
	if _, err := r.master.RemoveAll(ctx, service.RemoveRequest{Tenant: metadata.DefaultTenant, Force: true}); err != nil {
		t.Fatal(err)
	}
	r.put(100<<10, "last")
	if _, err := r.master.Ping(ctx, segment.ClientID{7}); err != nil {
		t.Fatal(err)
	}

	r.values("after some calls", map[string]float64{
		"master_key_count": 1, "mem_cache_nums_": 1, "master_soft_pin_key_count": 0, "master_active_clients": 1, "file_cache_nums_": 0,
		"master_total_capacity_bytes": 1 << 20, "understudy_segments": 1, "understudy_evictable_objects": 1,
		"understudy_exist_misses_total": 1, "total_get_nums_": 3, "valid_get_nums_": 2, "mem_cache_hit_nums_": 2, "mem_cache_hit_bytes_total": 2000,
		"master_put_start_requests_total": 4, "master_put_start_failures_total": 0, "master_ping_requests_total": 1,
		"master_get_replica_list_requests_total": 3, "master_get_replica_list_failures_total": 1,
		"master_batch_exist_key_requests_total": 1, "master_batch_exist_key_items_total": 2, "master_batch_exist_key_failed_items_total": 1,
		"master_batch_exist_key_partial_successes_total": 1, "master_batch_exist_key_failures_total": 0,
		"understudy_leases_granted_total": 2, "understudy_leases_revoked_total": 2, "understudy_renewals_marked_total": 2,
		"understudy_term": 1, "understudy_promotable": 1, "understudy_started_empty": 0, "understudy_queue_submissions": 0,
		"understudy_applied_sequence": float64(r.store.Position().Seq), "ha_oplog_applied_sequence_id": float64(r.store.Position().Seq),
		"understudy_committed_sequence": float64(r.store.Position().Seq), "ha_standby_state": 7,
	})
	quarantined, _ := r.value("understudy_quarantined_bytes")
	if busy, _ := r.value("master_allocated_bytes"); quarantined == 0 || busy < quarantined+100<<10 {
		t.Errorf("%v bytes allocated, %v of them in quarantine after a forced removal; want some in quarantine, and 100 KiB beside it", busy, quarantined)
	}
	r.want("delete events", `understudy_delete_events_total: counter
		understudy_delete_events_total{type="EVICT_TENANT"} 0
		understudy_delete_events_total{type="PUT_REVOKE"} 0
		understudy_delete_events_total{type="REMOVE"} 1
		understudy_delete_events_total{type="REMOVE_ALL"} 1
		understudy_delete_events_total{type="REMOVE_BY_REGEX"} 0
		understudy_delete_events_total{type="UNMOUNT_SEGMENT"} 0
	`, "understudy_delete_events_total")
	r.want("value sizes", `master_value_size_bytes: histogram
		master_value_size_bytes_bucket{le="4096"} 3
		master_value_size_bytes_bucket{le="65536"} 3
		master_value_size_bytes_bucket{le="262144"} 4
		master_value_size_bytes_bucket{le="1.048576e+06"} 4
		master_value_size_bytes_bucket{le="4.194304e+06"} 4
		master_value_size_bytes_bucket{le="1.6777216e+07"} 4
		master_value_size_bytes_bucket{le="6.7108864e+07"} 4
		master_value_size_bytes_bucket{le="+Inf"} 4
		master_value_size_bytes_sum 105400
		master_value_size_bytes_count 4
	`, "master_value_size_bytes")
	r.want("lease TTLs", `understudy_lease_ttl_seconds: histogram
		understudy_lease_ttl_seconds_bucket{le="1"} 0
		understudy_lease_ttl_seconds_bucket{le="2"} 0
		understudy_lease_ttl_seconds_bucket{le="5"} 0
		understudy_lease_ttl_seconds_bucket{le="10"} 2
		understudy_lease_ttl_seconds_bucket{le="20"} 2
		understudy_lease_ttl_seconds_bucket{le="60"} 2
		understudy_lease_ttl_seconds_bucket{le="300"} 2
		understudy_lease_ttl_seconds_bucket{le="600"} 2
		understudy_lease_ttl_seconds_bucket{le="3600"} 2
		understudy_lease_ttl_seconds_bucket{le="+Inf"} 2
		understudy_lease_ttl_seconds_sum 20
		understudy_lease_ttl_seconds_count 2
	`, "understudy_lease_ttl_seconds")
}

func TestBatchesWhoseAnswersLeaveItemsOut(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.put(100, "x")
	if _, err := r.master.BatchReplicaClear(ctx, metadata.DefaultTenant, []string{"x", "nothing"}, segment.ClientID{1}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := r.master.BatchQueryIp(ctx, []segment.ClientID{{1}, {2}, {3}}); err != nil {
		t.Fatal(err)
	}
	r.values("clear and query", map[string]float64{
		"master_batch_replica_clear_requests_total": 1, "master_batch_replica_clear_items_total": 2,
		"master_batch_replica_clear_failed_items_total": 1, "master_batch_replica_clear_partial_successes_total": 1,
		"master_batch_query_ip_requests_total": 1, "master_batch_query_ip_items_total": 3, "master_batch_query_ip_failed_items_total": 2,
	})
}

// A name that is no UTF-8 must not cost the whole scrape.
func TestSegmentsThatShareAName(t *testing.T) {
	r := newRig(t)
	for n, name := range map[byte]string{2: "b", 3: "b", 4: "\xff", 5: "\xfe"} {
		spec := segment.Spec{ID: segment.ID{n}, Name: name, Base: uint64(n) << 40, Size: 1 << 20, Endpoint: "b:1", Client: segment.ClientID{n}}
		if err := r.master.MountSegment(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	r.put(640<<10, "1", "2", "3", "4", "5") // one to each segment: there is no room for two
	r.want("by name", `segment_allocated_bytes: gauge
		segment_allocated_bytes{segment="a"} 655360
		segment_allocated_bytes{segment="b"} 1.31072e+06
		segment_allocated_bytes{segment="`+"\uFFFD"+`"} 1.31072e+06
		segment_total_capacity_bytes: gauge
		segment_total_capacity_bytes{segment="a"} 1.048576e+06
		segment_total_capacity_bytes{segment="b"} 2.097152e+06
		segment_total_capacity_bytes{segment="`+"\uFFFD"+`"} 2.097152e+06
	`, "segment_allocated_bytes", "segment_total_capacity_bytes")
}

// Whoever mounts many segments makes no scrape of many megabytes: the largest names are
// shown, and the sum of the others.
func TestManyNamesOfSegments(t *testing.T) {
	r := newRig(t)
	var specs []segment.Spec
	for i := range 1100 {
		specs = append(specs, segment.Spec{
			ID: segment.ID{9, byte(i), byte(i >> 8)}, Name: fmt.Sprintf("host-%04d%s", i, strings.Repeat("x", 1015)), Base: 1 << 40, Size: 2 << 20,
			Endpoint: fmt.Sprint(i, ":1"), Client: segment.ClientID{9},
		})
	}
	if err := r.master.ReMountSegment(t.Context(), segment.ClientID{9}, specs); err != nil {
		t.Fatal(err)
	}
	shown := make(map[string]float64)
	for _, family := range r.gather() {
		if family.GetName() != "segment_total_capacity_bytes" {
			continue
		}
		for _, m := range family.GetMetric() {
			shown[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	if len(shown) != 1001 {
		t.Errorf("%d names are shown, want 1001", len(shown))
	}
	if got, want := shown["(others)"], float64(100*2<<20+1<<20); got != want { // one is the rig's
		t.Errorf("the others have %v bytes, want %v", got, want)
	}
	w := httptest.NewRecorder()
	r.Metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if got := w.Body.Len(); got < 2<<20 || got > 3<<20 {
		t.Errorf("a scrape has %d bytes, want 2 to 3 MiB", got)
	}
}

func TestRoles(t *testing.T) {
	r := newRig(t)
	r.status.Self.Role = promote.HandingOver
	r.want("role", `understudy_role: gauge
		understudy_role{role="electing"} 0
		understudy_role{role="fenced"} 0
		understudy_role{role="handing_over"} 1
		understudy_role{role="primary"} 0
		understudy_role{role="promoting"} 0
		understudy_role{role="standby"} 0
		understudy_role{role="stopping"} 0
	`, "understudy_role")
	for _, tc := range []struct {
		role       promote.Role
		promotable bool
		want       float64
	}{
		{promote.Standby, true, 3}, {promote.Standby, false, 4}, {promote.Electing, true, 6}, {promote.Promoting, true, 6},
		{promote.Primary, true, 7}, {promote.Fenced, true, 7}, {promote.Stopping, true, 0},
	} {
		r.status.Self.Role, r.status.Self.Promotable = tc.role, tc.promotable
		r.values(string(tc.role), map[string]float64{"ha_standby_state": tc.want})
	}
}

func TestSnapshotLoads(t *testing.T) {
	r := newRig(t)
	r.status.Loads = map[journal.Reason]int{journal.ReasonDigest: 2, journal.ReasonStart: 1, "new": 3}
	r.want("loads", `understudy_snapshot_loads_total: counter
		understudy_snapshot_loads_total{reason="compacted"} 0
		understudy_snapshot_loads_total{reason="corrupt"} 0
		understudy_snapshot_loads_total{reason="difference"} 0
		understudy_snapshot_loads_total{reason="digest"} 2
		understudy_snapshot_loads_total{reason="founded"} 0
		understudy_snapshot_loads_total{reason="gap"} 0
		understudy_snapshot_loads_total{reason="lag"} 0
		understudy_snapshot_loads_total{reason="new"} 3
		understudy_snapshot_loads_total{reason="start"} 1
	`, "understudy_snapshot_loads_total")
	r.values("digest", map[string]float64{"understudy_digest_mismatches_total": 2})
}

func TestWithoutAState(t *testing.T) {
	r := newRig(t)
	r.store = nil
	r.status = promote.Status{Self: promote.NodeInfo{Role: promote.Standby}}
	r.hidden("no state", "master_key_count", "segment_allocated_bytes", "understudy_lease_ttl_seconds", "understudy_leases_granted_total")
	r.values("no state", map[string]float64{"understudy_promotable": 0, "understudy_applied_sequence": 0, "master_ping_requests_total": 0})
	if s := r.Summary(); !strings.Contains(s, "standby") {
		t.Error(s)
	}
}

func TestLag(t *testing.T) {
	r := newRig(t)
	r.hidden("before a poll", "understudy_lag_entries", "understudy_lag_seconds", "ha_oplog_standby_lag")
	r.follow(10, 1000)
	r.head = journal.Head{Term: 1, Seq: 15, Time: 3500}
	r.poll(t.Context(), false)
	behind := map[string]float64{
		"understudy_lag_entries": 5, "understudy_lag_seconds": 2.5, "ha_oplog_standby_lag": 5,
		"understudy_applied_sequence": 10, "understudy_committed_sequence": 15, "ha_oplog_last_sequence_id": 15,
	}
	r.values("behind", behind)

	r.away = true
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.poll(ctx, false)
	r.values("etcd is away", behind)

	r.away = false
	r.follow(16, 3600) // the head was read before
	r.poll(t.Context(), false)
	r.values("caught up", map[string]float64{"understudy_lag_entries": 0, "understudy_lag_seconds": 0, "understudy_committed_sequence": 16})

	r.follow(10, 1000)
	r.poll(t.Context(), false)
	r.status.Self.Role = promote.Primary
	r.values("promoted since", map[string]float64{"understudy_lag_entries": 0, "understudy_lag_seconds": 0})

	r.src.Head = nil
	for _, role := range []promote.Role{promote.Standby, promote.Primary} {
		r.status.Self.Role = role
		r.Metrics = New(r.src)
		r.poll(t.Context(), false)
		r.hidden("no journal", "understudy_lag_entries")
	}
}

// A node that waits for its first state is not as far behind as the cluster is
// old: an alert would blame its way to etcd.
func TestNoLagWithoutAState(t *testing.T) {
	r := newRig(t)
	r.store = nil
	r.status = promote.Status{Self: promote.NodeInfo{Role: promote.Standby}}
	r.head = journal.Head{Term: 3, Seq: 2_600_000, Time: 30 * 24 * 3600 * 1000}
	r.poll(t.Context(), false)
	r.hidden("no state", "understudy_lag_entries", "understudy_lag_seconds", "ha_oplog_standby_lag")
	r.values("no state", map[string]float64{"understudy_term": 3, "understudy_applied_sequence": 0, "understudy_committed_sequence": 2_600_000})
	if s := r.Summary(); !strings.Contains(s, "term 3, applied 0 of 2600000 |") {
		t.Error(s)
	}
	r.follow(2_599_999, r.head.Time-500)
	r.poll(t.Context(), false)
	r.values("a state", map[string]float64{"understudy_lag_entries": 1, "understudy_lag_seconds": 0.5})
}

func TestCommitAge(t *testing.T) {
	r := newRig(t)
	r.clock = 5 * time.Second
	r.values("the first look", map[string]float64{"understudy_commit_age_seconds": 0})
	r.clock = 8 * time.Second
	r.values("nothing moved", map[string]float64{"understudy_commit_age_seconds": 3})
	r.p.Pass(time.Millisecond)
	r.poll(t.Context(), false)
	r.clock = 9 * time.Second
	r.values("moved at the poll", map[string]float64{"understudy_commit_age_seconds": 1})
}

func TestEtcdSize(t *testing.T) {
	r := newRig(t)
	r.hidden("before a poll", "understudy_etcd_db_bytes", "understudy_etcd_quota_bytes")
	r.poll(t.Context(), true)
	r.values("known", map[string]float64{"understudy_etcd_db_bytes": 3 << 20, "understudy_etcd_quota_bytes": 16 << 20})
	r.poll(t.Context(), false)
	r.values("kept", map[string]float64{"understudy_etcd_db_bytes": 3 << 20})
	r.src.EtcdSize = func(context.Context) (used, quota uint64) { return 1, 0 }
	r.poll(t.Context(), true)
	r.hidden("no quota is known", "understudy_etcd_quota_bytes")
}

func TestCutoffs(t *testing.T) {
	r := newRig(t)
	r.put(100, "x", "y", "z")
	r.p.Pass(time.Minute)
	for _, n := range []int{1, 2} {
		pass := eviction.Select(r.store, eviction.Bounds{Objects: n})
		if pass == nil || pass.Victims != n {
			t.Fatalf("an eviction pass: got %+v, want %d victims", pass, n)
		}
		r.p.Commit(pass.Cutoff)
	}
	for _, f := range r.gather() {
		if f.GetName() != "understudy_objects_per_cutoff" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		if h.GetSampleCount() != 2 || h.GetSampleSum() != 3 {
			t.Errorf("%d cutoffs of %v objects, want 2 and 3", h.GetSampleCount(), h.GetSampleSum())
		}
		if b := h.GetBucket(); b[0].GetCumulativeCount() != 1 || b[1].GetCumulativeCount() != 2 || b[len(b)-1].GetCumulativeCount() != 2 {
			t.Errorf("got %v, want 1, 2 and 2", b)
		}
		return
	}
	t.Error("understudy_objects_per_cutoff after two evictions: got it not shown, want it shown")
}

func TestTakeovers(t *testing.T) {
	r := newRig(t)
	r.want("none yet", `understudy_cleanup_objects_total: counter
		understudy_cleanup_objects_total 0
	`, "understudy_cleanup_objects_total")
	r.status.Takeover = promote.Takeover{Elect: time.Millisecond, CatchUp: 20 * time.Millisecond, Objects: 7, Bytes: 700}
	r.poll(t.Context(), false)
	r.values("it is not over", map[string]float64{"understudy_cleanup_objects_total": 0})
	r.status.Takeover.Term = 2 // announced by its first entry
	for range 3 {
		r.poll(t.Context(), false)
	}
	r.values("counted once", map[string]float64{"understudy_cleanup_objects_total": 7, "understudy_cleanup_bytes_total": 700})
	r.status.Takeover.Term = 4 // took as long
	r.poll(t.Context(), false)
	r.values("another one", map[string]float64{"understudy_cleanup_objects_total": 14})
	phases := 0
	for _, f := range r.gather() {
		if f.GetName() != "understudy_takeover_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			phases++
			if n := m.GetHistogram().GetSampleCount(); n != 2 {
				t.Errorf("%d takeovers in phase %v, want 2", n, m.GetLabel())
			}
		}
	}
	if phases != 5 {
		t.Errorf("%d phases, want 5", phases)
	}
}

func TestObservers(t *testing.T) {
	r := newRig(t)
	r.Call(t.Context(), "/understudy.v1.ObjectService/PutStart", codes.OK, time.Millisecond)
	r.Call(t.Context(), "/grpc.health.v1.Health/Check", codes.NotFound, time.Second)
	labels := make(map[string]bool)
	for _, f := range r.gather() {
		if f.GetName() == "understudy_rpc_duration_seconds" {
			for _, m := range f.GetMetric() {
				labels[m.GetLabel()[1].GetValue()+" "+m.GetLabel()[0].GetValue()] = true
			}
		}
	}
	if len(labels) != 2 || !labels["ObjectService/PutStart OK"] || !labels["Health/Check NotFound"] {
		t.Errorf("got labels %v, want those of PutStart and of the health check", labels)
	}

	r.Committed(t.Context(), 3, 100, 2*time.Millisecond, time.Millisecond)
	r.Committed(t.Context(), 0, 0, 4*time.Millisecond, time.Millisecond) // a heartbeat
	want := map[string]struct {
		count uint64
		sum   float64
	}{
		"understudy_commit_duration_seconds": {2, .006}, "ha_oplog_etcd_write_latency_us": {2, 6000}, "understudy_apply_duration_seconds": {2, .002},
		"understudy_commit_changes": {1, 3}, "understudy_commit_bytes": {1, 100},
	}
	for _, f := range r.gather() {
		if w, ok := want[f.GetName()]; ok {
			h := f.GetMetric()[0].GetHistogram()
			if diff := h.GetSampleSum() - w.sum; h.GetSampleCount() != w.count || diff > 1e-9 || diff < -1e-9 {
				t.Errorf("%s: %d observations, sum %v; want %+v", f.GetName(), h.GetSampleCount(), h.GetSampleSum(), w)
			}
			delete(want, f.GetName())
		}
	}
	if len(want) > 0 {
		t.Errorf("what the observers saw: got some not shown, want also %v", want)
	}

	r.Refused(1, rpctypes.ErrNoSpace)
	r.Refused(1, rpctypes.ErrNoSpace)
	r.Refused(1, rpctypes.ErrRequestTooLarge)
	r.Refused(1, errors.New("something else"))
	r.want("refused", `understudy_commits_refused_total: counter
		understudy_commits_refused_total{reason="no_space"} 2
		understudy_commits_refused_total{reason="other"} 1
		understudy_commits_refused_total{reason="too_large"} 1
	`, "understudy_commits_refused_total")
	r.values("refused", map[string]float64{"ha_oplog_etcd_write_failures_total": 4})
	r.src.RefusedConnections = func() (ofPeers, ofIdentities uint64) { return 3, 2 }
	r.want("connections", `understudy_connections_refused_total: counter
		understudy_connections_refused_total{of="identity"} 2
		understudy_connections_refused_total{of="peer"} 3
	`, "understudy_connections_refused_total")
}

func TestSummary(t *testing.T) {
	r := newRig(t)
	r.put(100<<10, "x", "y")
	_, _ = r.master.GetReplicaList(t.Context(), metadata.DefaultTenant, "nothing")
	_, _, _ = r.master.BatchExistKey(t.Context(), metadata.DefaultTenant, []string{"x", "z"})
	r.poll(t.Context(), false)
	r.status.Position = metadata.Position{Seq: 9, Term: 1}
	want := "Role: primary, term 1, applied 9 of 9, lag 0 (0.0 s) | Mem Storage: 208 KiB / 1.0 MiB (20.3%) | Keys: 2 (soft-pinned: 0) | Clients: 1 | " +
		"Requests (Success/Total): PutStart=2/2, PutEnd=2/2, PutRevoke=0/0, Get=0/1, Exist=0/0, Del=0/0, DelByRegex=0/0, DelAll=0/0, Ping=0/0 | " +
		"Batch Items (Success/Total): PutStart=0/0, PutEnd=0/0, PutRevoke=0/0, Get=0/0, Exist=2/2, Del=0/0 | " +
		"Eviction: Success/Attempts=0/0, keys=0, size=0 B | Queue: 0 (0 B)"
	if got := r.Summary(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// The summary has the C++ master's form. Its rates are counted over at least
// rateWindow.
func TestMooncakeSummary(t *testing.T) {
	r := newRig(t)
	r.put(100<<10, "x", "y")
	_, _ = r.master.GetReplicaList(t.Context(), metadata.DefaultTenant, "nothing")
	_, _, _ = r.master.BatchExistKey(t.Context(), metadata.DefaultTenant, []string{"x", "z"})
	r.status.Position = metadata.Position{Seq: 9, Term: 1}
	r.clock += 4 * time.Second
	want := "Mem Storage: 208.00 KB / 1.00 MB (20.3%) | NVMe-oF SSD: 0 B / 0 B | SSD Storage: 0 B / 0 B | Keys: 2 (soft-pinned: 0) | Clients: 1 | " +
		"Requests (Success/Total per sec): PutStart=0.50/0.50, PutEnd=0.50/0.50, PutRevoke=0.00/0.00, Get=0.00/0.25, Exist=0.00/0.00, Del=0.00/0.00, " +
		"DelAll=0.00/0.00, Ping=0.00/0.00, CopyStart=0.00/0.00, CopyEnd=0.00/0.00, CopyRevoke=0.00/0.00, MoveStart=0.00/0.00, MoveEnd=0.00/0.00, " +
		"MoveRevoke=0.00/0.00, EvictDiskReplica=0.00/0.00 | " +
		"Batch Requests (per sec, Req=Success/PartialSuccess/Total, Item=Success/Total): PutStart:(Req=0.00/0.00/0.00, Item=0.00/0.00), " +
		"PutEnd:(Req=0.00/0.00/0.00, Item=0.00/0.00), PutRevoke:(Req=0.00/0.00/0.00, Item=0.00/0.00), Get:(Req=0.00/0.00/0.00, Item=0.00/0.00), " +
		"ExistKey:(Req=0.25/0.00/0.25, Item=0.50/0.50), QueryIp:(Req=0.00/0.00/0.00, Item=0.00/0.00), Clear:(Req=0.00/0.00/0.00, Item=0.00/0.00), " +
		"CreateMoveTask:(Req=0.00/0.00), CreateCopyTask:(Req=0.00/0.00), QueryTask:(Req=0.00/0.00), FetchTasks:(Req=0.00/0.00), MarkTaskToComplete:(Req=0.00/0.00) | " +
		"Eviction: Success/Attempts=0/0, AllocFail=0, PartialAlloc=0, keys=0, size=0 B | Mem Eviction: Success/Attempts=0/0, keys=0, size=0 B | " +
		"NoF Eviction: Success/Attempts=0/0, keys=0, size=0 B | Discard: Released/Total=0/0, StagingSize=0 B | " +
		"Promotion: in_flight=0, admitted=0, completed=0, failed=0, cancelled=0, expired=0, bytes=0 B, rejected(freq/wm/cap)=0/0/0 | Snapshots: Success=0, Fail=0"
	got, ha := r.MooncakeSummary()
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if want := "HA Metrics Summary: last_seq=9, applied_seq=9, lag=0, pending=0, mutation_queue=0, batch_commits=0, sync_commits=0, skipped=0, checksum_fail=0, " +
		"etcd_fail=0, watch_disconn=0, state=7"; ha != want {
		t.Errorf("got:\n%s\nwant:\n%s", ha, want)
	}
	for passed, want := range []string{"PutStart=0.14/0.14", "PutStart=0.00/0.00"} { // in 14 s, and 10 s without
		r.clock += rateWindow
		if got, _ := r.MooncakeSummary(); !strings.Contains(got, want) {
			t.Errorf("look %d: got %s, want %s in it", passed, got, want)
		}
	}
}

// A scraper that prefers OpenMetrics would get other names for counters that do
// not end in _total.
func TestNamesStayAsTheyAre(t *testing.T) {
	r := newRig(t)
	req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	req.Header.Set("Accept", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
	resp := httptest.NewRecorder()
	r.Handler().ServeHTTP(resp, req)
	if resp.Code != http.StatusOK || !strings.Contains(resp.Body.String(), "\nmaster_evicted_key_count 0\n") {
		t.Errorf("got %d:\n%s, want StatusOK and \"\nmaster_evicted_key_count 0\n\"", resp.Code, resp.Body)
	}
}

func TestSettingsThatDiffer(t *testing.T) {
	r := newRig(t)
	for _, differ := range []int{0, 3} {
		r.differ = differ
		if got, _ := r.value("understudy_settings_differ"); got != float64(differ) {
			t.Errorf("got %v settings that differ, want %d", got, differ)
		}
	}
}
