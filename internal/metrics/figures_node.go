package metrics

import (
	"slices"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/promote"
)

// nodeFigures are how the node stands in its cluster.
func nodeFigures() []figure {
	return []figure{
		gaugeBy("role", "understudy_role", "1 for the role that this node has, 0 for the others.", roleOf),
		gaugeBy("version", "understudy_build_info", "1, with the version of this program.",
			func(s *scrape, e emit) { e(1, s.status.Self.Version) }),
		gauge("understudy_term", "The newest term that this node knows of.",
			func(s *scrape) float64 { return float64(s.term()) }),
		gauge("understudy_applied_sequence", "The sequence of the newest commit that this node has applied.",
			func(s *scrape) float64 { return float64(s.status.Position.Seq) }),
		gauge("understudy_committed_sequence", "The sequence of the newest commit that this node knows of.",
			func(s *scrape) float64 { return float64(s.committed()) }),
		gauge("understudy_commit_age_seconds", "How long ago this node saw its state move on; a primary commits at least once a second.",
			func(s *scrape) float64 { return s.commitAge.Seconds() }),
		gauge("understudy_promotable", "1 if this node holds a complete state: it is elected, or could take over.",
			func(s *scrape) float64 { return flag(s.status.Self.Promotable) }),
		gauge("ha_standby_state", "The role in the numbers of the C++ master: 0 stopped, 3 watching, 4 recovering, 6 promoting, 7 promoted.",
			func(s *scrape) float64 { return standbyState(s.status.Self) }),
		gauge("ha_oplog_applied_sequence_id", "The sequence of the newest commit that this node has applied.",
			func(s *scrape) float64 { return float64(s.status.Position.Seq) }),
		gauge("ha_oplog_last_sequence_id", "The sequence of the newest commit that this node knows of.",
			func(s *scrape) float64 { return float64(s.committed()) }),
	}
}

// queueFigures are what waits for the journal.
func queueFigures() []figure {
	return []figure{
		gauge("understudy_queue_bytes", "Bytes of changes that wait for a commit.",
			func(s *scrape) float64 { return float64(s.queueBytes) }),
		gauge("understudy_queue_submissions", "Callers whose changes wait for a commit.",
			func(s *scrape) float64 { return float64(s.submissions) }),
		gauge("ha_pending_mutation_queue_size", "Callers whose changes wait for a commit.",
			func(s *scrape) float64 { return float64(s.submissions) }),
	}
}

// takeoverFigures are how this node came by its state.
func takeoverFigures() []figure {
	return []figure{
		gauge("understudy_started_empty", "1 in a term that this node began with all that was before lost.",
			func(s *scrape) float64 { return flag(s.status.Empty) }),
		counterBy("reason", "understudy_snapshot_loads_total", "Snapshots that this node loaded, by the reason why it needed one.", loadsOf),
		counter("understudy_digest_mismatches_total", "States of this node that differed from the primary's, counted when a snapshot has mended it; always 0 without a defect.",
			func(s *scrape) float64 { return s.loads(journal.ReasonDigest) }),
	}
}

// lagFigures are how far behind a standby is, once that is known.
func lagFigures() []figure {
	entries := func(s *scrape) float64 { return float64(s.lagEntries) }
	return []figure{
		gauge("understudy_lag_entries", "Commits in the journal that this node has not applied; 0 on a primary, left out without a state.", entries),
		gauge("understudy_lag_seconds", "Cluster time between the newest commit and the one applied last; 0 on a primary, left out without a state.",
			func(s *scrape) float64 { return s.lagTime.Seconds() }),
		gauge("ha_oplog_standby_lag", "Commits in the journal that this node has not applied; 0 on a primary, left out without a state.", entries),
	}
}

// etcdFigures are what etcd says of itself, once it has.
func etcdFigures() []figure {
	return []figure{
		gauge("understudy_etcd_db_bytes", "Size of etcd's database.",
			func(s *scrape) float64 { return float64(s.etcdBytes) }),
		{Family{"understudy_etcd_quota_bytes", Gauge, "Size of etcd's database at which it refuses writes; left out if this node does not know it.", nil},
			func(s *scrape, e emit) {
				if s.etcdQuota > 0 {
					e(float64(s.etcdQuota))
				}
			}},
	}
}

func roleOf(s *scrape, e emit) {
	for _, r := range roles {
		e(flag(r == s.status.Self.Role), roleName(r))
	}
}

func loadsOf(s *scrape, e emit) {
	for _, r := range reasons {
		e(s.loads(r), string(r))
	}
	for r := range s.status.Loads {
		if !slices.Contains(reasons, r) {
			e(s.loads(r), string(r))
		}
	}
}

// standbyState translates a role to the C++ master's state of a standby.
func standbyState(n promote.NodeInfo) float64 {
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
