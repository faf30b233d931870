package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/promote"
)

// Titles of groups.
const (
	titleNode     = "Role, term and lag"
	titleCommits  = "Commits"
	titleTakeover = "Takeovers and snapshots"
	titleState    = "Memory and objects"
	titleLeases   = "Leases and renewals"
	titleEviction = "Eviction"
	titleTenants  = "Tenants"
	titleEtcd     = "etcd"
	titleCerts    = "Certificates"
	titleCalls    = "Clients and calls"
	titleEachCall = "Each call"
)

// The metric of certificates, which witnesses have, too.
const (
	certificateName = "understudy_certificate_expiry_timestamp_seconds"
	certificateHelp = "When the certificate in use expires, in seconds since 1970 UTC, by kind: node (--tls-cert), etcd (--etcd-cert)."
)

// figures sends everything that is read at a scrape and known.
func (s *scrape) figures(to func(title string) sink) {
	s.node(to(titleNode))
	if s.lagKnown {
		s.lag(to(titleNode))
	}
	s.queue(to(titleCommits))
	s.takeovers(to(titleTakeover))
	s.saving(to(titleTakeover))
	s.lately(to(titleCommits), to(titleTakeover))
	if s.hasState {
		s.state(to(titleState))
		s.leaseCounts(to(titleLeases))
		s.leaseTTLs(to(titleLeases))
		s.cutoffSizes(to(titleEviction))
	}
	s.renewalCounts(to(titleLeases))
	s.evictionCounts(to(titleEviction))
	if len(s.tenants) > 0 {
		s.quotas(to(titleTenants))
	}
	if s.etcdBytes > 0 {
		s.etcd(to(titleEtcd))
	}
	for kind, expires := range s.certificates {
		gaugeBy(to(titleCerts), certificateName, "kind", kind, certificateHelp, expires.Unix())
	}
	s.callCounts(to(titleCalls))
	for _, op := range service.Ops() {
		s.eachCall(to(titleEachCall), op)
	}
}

func (s *scrape) node(to sink) {
	self, applied, committed := s.status.Self, s.status.Position.Seq, s.committed()
	for _, r := range roles {
		gaugeBy(to, "understudy_role", "role", roleName(r), "1 for the role that this node has, 0 for the others.", flag(r == self.Role))
	}
	gaugeBy(to, "understudy_build_info", "version", self.Version, "1, with the version of this program.", 1)
	gauge(to, "understudy_term", "The newest term that this node knows of.", s.term())
	gauge(to, "understudy_applied_sequence", "The sequence of the newest commit that this node has applied.", applied)
	gauge(to, "understudy_committed_sequence", "The sequence of the newest commit that this node knows of.", committed)
	gauge(to, "understudy_commit_age_seconds", "How long ago this node saw its state move on; a primary commits at least once a second.",
		s.commitAge.Seconds())
	gauge(to, "understudy_takeover_paused", "1 if automatic takeover is paused (masterctl pause), as seen by a node that is not elected.", flag(s.status.Paused))
	gauge(to, "understudy_promotable", "1 if this node holds a complete state: it is elected, or could take over.", flag(self.Promotable))
	gauge(to, "understudy_settings_differ",
		"Settings that should be alike on all nodes, and are others here than on the primary; 0 on the primary.", s.settingsDiffer)
	gauge(to, "ha_standby_state",
		"The role in the numbers of the C++ master: 0 stopped, 3 watching, 4 recovering, 6 promoting, 7 promoted.", standbyState(self))
	gauge(to, "ha_oplog_applied_sequence_id", "The sequence of the newest commit that this node has applied.", applied)
	gauge(to, "ha_oplog_last_sequence_id", "The sequence of the newest commit that this node knows of.", committed)
}

// standbyState returns the number that the C++ master gives a standby's state.
func standbyState(n promote.NodeInfo) int {
	const stopped, watching, recovering, promoting, promoted = 0, 3, 4, 6, 7
	switch n.Role {
	case promote.Standby:
		if n.Promotable {
			return watching
		}
		return recovering
	case promote.Electing, promote.Promoting:
		return promoting
	case promote.Primary, promote.HandingOver, promote.Fenced:
		return promoted
	case promote.Stopping:
	}
	return stopped
}

func (s *scrape) lag(to sink) {
	const entries = "Commits in the journal that this node has not applied; 0 on a primary, left out without a state."
	gauge(to, "understudy_lag_entries", entries, s.lagEntries)
	gauge(to, "understudy_lag_seconds",
		"Cluster time between the newest commit and the one applied last; 0 on a primary, left out without a state.", s.lagTime.Seconds())
	gauge(to, "ha_oplog_standby_lag", entries, s.lagEntries)
}

func (s *scrape) queue(to sink) {
	gauge(to, "understudy_queue_bytes", "Bytes of changes that wait for a commit.", s.queueBytes)
	gauge(to, "understudy_queue_submissions", "Callers whose changes wait for a commit.", s.submissions)
	gauge(to, "ha_pending_mutation_queue_size", "Callers whose changes wait for a commit.", s.submissions)
}

// takeovers shows how this node got its state.
func (s *scrape) takeovers(to sink) {
	gauge(to, "understudy_started_empty", "1 in a term that this node began with all that was before lost.", flag(s.status.Empty))
	gauge(to, "understudy_failover_after_seconds",
		"How long a primary that commits nothing is waited for, as the journal says now; 0 while nodes of an older version are registered.",
		s.status.FailoverAfter.Seconds())
	gauge(to, "understudy_serve_window_seconds", "How long a primary answers calls after it sent a commit, as the journal says now.",
		s.status.Window.Seconds())
	counter(to, "understudy_serve_lapses_total", "Times at which no commit came through and this node answered nobody until one did.", s.status.Lapses)
	counter(to, "understudy_failover_raises_total", "Times at which this node raised the failover time because commits were slow.", s.status.Raised)
	counter(to, "understudy_deposals_total", "Primaries that this node deposed because their commits had stopped.", s.status.Deposals)
	awaited := 0
	if s.status.Obstacle != nil {
		awaited = s.status.Obstacle.Awaited
	}
	gauge(to, "understudy_awaited_nodes",
		"Complete nodes that are away and that this node waits for before it starts empty.", awaited)
	gauge(to, "understudy_journal_lost",
		"1 while etcd does not hold the journal that this node's state comes from; the node keeps the state.", flag(s.status.Loss.Err != nil))
	gauge(to, "understudy_journal_founded", "1 in a term for which this node founded the journal anew, after it was lost.", flag(s.status.Founded != ""))
	loads := func(r journal.Reason) {
		counterBy(to, "understudy_snapshot_loads_total", "reason", string(r),
			"Snapshots that this node loaded, by the reason why it needed one.", s.status.Loads[r])
	}
	for _, r := range reasons {
		loads(r)
	}
	for r := range s.status.Loads {
		if !slices.Contains(reasons, r) {
			loads(r)
		}
	}
	counter(to, "understudy_digest_mismatches_total",
		"States of this node that differed from the primary's, counted when a snapshot has mended it; always 0 without a defect.",
		s.status.Loads[journal.ReasonDigest])
}

func (s *scrape) saving(to sink) {
	saving := s.status.Saving
	counter(to, "understudy_state_saves_total", "State files that this node wrote.", saving.Saves)
	counter(to, "understudy_state_save_failures_total", "Attempts to save or load the state that failed.", saving.Failures)
	counter(to, "master_snapshot_success", "State files that this node wrote.", saving.Saves)
	counter(to, "master_snapshot_fail", "Attempts to save or load the state that failed.", saving.Failures)
	gauge(to, "understudy_state_saved_sequence", "The sequence to which this node's newest state file leads.", saving.Seq)
	gauge(to, "understudy_state_file_age_seconds", "How long ago this node wrote or loaded its newest state file; 0 for none.", saving.Age.Seconds())
	gauge(to, "understudy_state_restorable", "1 if the journal goes on from this node's newest state file.", flag(saving.Restorable))
}

func (s *scrape) etcd(to sink) {
	gauge(to, "understudy_etcd_db_bytes", "Size of etcd's database.", s.etcdBytes)
	if s.etcdQuota > 0 {
		gauge(to, "understudy_etcd_quota_bytes",
			"Size of etcd's database at which it refuses writes; left out if this node does not know it.", s.etcdQuota)
	}
}

func (s *scrape) refusedConnections(to sink) {
	const help = "Connections that this node closed as they were too many: on ports other than HTTP of their address or in all (peer), on any of the identity of their certificate (identity)."
	counterBy(to, "understudy_connections_refused_total", "of", refusedPeer, help, s.refusedPeers)
	counterBy(to, "understudy_connections_refused_total", "of", refusedIdentity, help, s.refusedIdentities)
}

// callCounts shows what service.Counters counts, under the C++ master's names.
func (s *scrape) callCounts(to sink) {
	c := s.calls
	gauge(to, "master_active_clients", "Clients that are alive; 0 on a node that does not serve.", s.clients)
	gauge(to, "understudy_clients_held",
		"Of master_active_clients, those that are silent for too long and expire slowly, because many are silent at once.", s.held)
	s.refusedConnections(to)
	counter(to, "total_get_nums_", "Keys that were asked for with GetReplicaList, batches and patterns included.", c.Gets.Load())
	counter(to, "valid_get_nums_", "Of total_get_nums_, keys that had a readable replica.", c.ValidGets.Load())
	counter(to, "understudy_exist_misses_total",
		"Keys that ExistKey, batches included, found no readable replica of. Hit rate: valid_get_nums_ / (total_get_nums_ + understudy_exist_misses_total).",
		c.ExistMisses.Load())
	counter(to, "mem_cache_hit_nums_", "Of valid_get_nums_, keys with a replica in memory.", c.MemoryHits.Load())
	counter(to, "mem_cache_hit_bytes_total", "Bytes of the objects that mem_cache_hit_nums_ counts.", c.MemoryHitBytes.Load())
	counter(to, "file_cache_hit_nums_", "Of valid_get_nums_, keys with a replica on disk only.", c.DiskHits.Load())
	counter(to, "file_cache_hit_bytes_total", "Bytes of the objects that file_cache_hit_nums_ counts.", c.DiskHitBytes.Load())
	counter(to, "master_put_start_alloc_failures_total", "Puts that found no room.", c.AllocationFailures.Load())
	counter(to, "master_put_start_partial_allocations_total", "Puts that got fewer replicas than they asked for.", c.PartialAllocations.Load())
	p := &c.Promotions
	gauge(to, "master_promotion_in_flight", "Promotions from SSDs to memory that wait or are under way.", p.InFlight.Load())
	counter(to, "master_promotion_admitted_total", "Objects that their clients were to promote.", p.Admitted.Load())
	counter(to, "master_promotion_rejected_frequency_total", "Reads from SSDs of objects that were not read often enough to be promoted.", p.RejectedFrequency.Load())
	counter(to, "master_promotion_rejected_watermark_total", "Reads from SSDs while memory was too full for a promotion.", p.RejectedWatermark.Load())
	counter(to, "master_promotion_rejected_cap_total", "Reads from SSDs while too many promotions were in flight.", p.RejectedCap.Load())
	counter(to, "master_promotion_completed_total", "Objects that were promoted.", p.Completed.Load())
	counter(to, "master_promotion_completed_bytes_total", "Bytes of the objects that were promoted.", p.CompletedBytes.Load())
	counter(to, "master_promotion_failed_total", "Promotions that clients gave up.", p.Failed.Load())
	counter(to, "master_promotion_cancelled_total", "Promotions whose object, SSD or memory has gone.", p.Cancelled.Load())
	counter(to, "master_promotion_expired_total", "Promotions that their client never ended.", p.Expired.Load())
	for _, t := range deleteTypes {
		counterBy(to, "understudy_delete_events_total", "type", t.String(), "Delete events that this node committed, by type.", c.Deletes[t].Load())
	}
}

// eachCall shows the same few figures for each call.
func (s *scrape) eachCall(to sink, op service.Op) {
	c, call, prefix := s.calls.Of(op), string(op), "master_"+string(op)
	counter(to, prefix+"_requests_total", "Calls of "+call+".", c.Requests.Load())
	counter(to, prefix+"_failures_total", "Calls of "+call+" that failed; of a batch, those of which every item failed.", c.Failures.Load())
	if isBatch(op) {
		counter(to, prefix+"_partial_successes_total", "Calls of "+call+" of which some items failed.", c.Partial.Load())
		counter(to, prefix+"_items_total", "Items in calls of "+call+".", c.Items.Load())
		counter(to, prefix+"_failed_items_total", "Items in calls of "+call+" that failed.", c.FailedItems.Load())
	}
}

func isBatch(op service.Op) bool { return strings.HasPrefix(string(op), "batch_") }

// A sink takes figures: the family of each, and a function that makes the metric.
type sink func(f Family, metric func(*prometheus.Desc) prometheus.Metric)

type number interface {
	~int | ~int64 | ~uint32 | ~uint64 | ~float64
}

func gauge[N number](to sink, name, help string, v N) {
	show(to, Family{name, Gauge, help, nil}, v)
}

func counter[N number](to sink, name, help string, v N) {
	show(to, Family{name, Counter, help, nil}, v)
}

func gaugeBy[N number](to sink, name, label, value, help string, v N) {
	show(to, Family{name, Gauge, help, []string{label}}, v, value)
}

func counterBy[N number](to sink, name, label, value, help string, v N) {
	show(to, Family{name, Counter, help, []string{label}}, v, value)
}

func show[N number](to sink, f Family, v N, labels ...string) {
	kind := prometheus.GaugeValue
	if f.Kind == Counter {
		kind = prometheus.CounterValue
	}
	to(f, func(d *prometheus.Desc) prometheus.Metric {
		return prometheus.MustNewConstMetric(d, kind, float64(v), labels...)
	})
}

func histogram(to sink, name, help string, count uint64, sum float64, buckets map[float64]uint64) {
	to(Family{name, Histogram, help, nil}, func(d *prometheus.Desc) prometheus.Metric {
		return prometheus.MustNewConstHistogram(d, count, sum, buckets)
	})
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
