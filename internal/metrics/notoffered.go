package metrics

// An Absence is metrics of the C++ master that Understudy does not show. A
// name may end in *. A metric that could only ever be 0 is not shown: it would
// say that something is watched that does not exist.
type Absence struct {
	Names   []string
	Why     string
	Instead string // metrics that answer the same question; empty for none
}

// NotOffered returns the metrics of Mooncake Store's master (August 2026) that
// have no source here, and why.
func NotOffered() []Absence {
	return []Absence{
		{[]string{"master_allocated_file_size_bytes", "master_total_file_capacity_bytes"},
			"Disk replicas are kept as metadata; their files are written and deleted by clients, so the file system knows their bytes.",
			"file_cache_nums_"},
		{[]string{"master_*_nof", "master_nof_*", "master_total_nof_capacity_bytes", "master_mount_nof_segment_*",
			"master_remount_nof_segment_*", "master_unmount_nof_segment_*", "nof_segment_*"},
			"There is no NVMe-oF pool.", ""},
		{[]string{"master_copy_*", "master_move_*", "master_create_copy_task_*", "master_create_move_task_*",
			"master_query_task_*", "master_fetch_tasks_*", "master_update_task_*"},
			"There are no copy and move tasks.", ""},
		{[]string{"master_evict_disk_replica_*"},
			"Clients do not evict disk replicas.", ""},
		{[]string{"master_promotion_*"},
			"Objects on a client's SSD are read there; they are not copied back to memory.", ""},
		{[]string{"mooncake_tenant_*"},
			"There are no tenant quotas.", ""},
		{[]string{"master_snapshot_*"},
			"A snapshot is a stream to a standby that needs one, not a file that is written from time to time.",
			"understudy_snapshot_loads_total"},
		{[]string{"master_put_start_release_cnt"},
			"Memory of discarded puts waits in the same quarantine as other freed memory.",
			"understudy_quarantine_exits_total"},
		{[]string{"master_put_start_discarded_staging_size"},
			"Memory of discarded puts waits in the same quarantine as other freed memory.",
			"understudy_quarantined_bytes"},
		{[]string{"master_client_liveness_*", "master_client_offboarding_*"},
			"A client is alive or gone; one that goes is unmounted in one event, without a queue.",
			"master_active_clients"},
		{[]string{"ha_state_transitions_total"},
			"Roles are shown as they are at a scrape.",
			"understudy_role, understudy_term"},
		{[]string{"ha_oplog_applied_entries_total"},
			"Progress is counted in commits.",
			"understudy_applied_sequence"},
		{[]string{"ha_oplog_pending_entries", "ha_oplog_skipped_entries_total", "ha_oplog_dropped_put_end_total", "ha_oplog_gap_resolve_*"},
			"A standby gets commits in order and skips none; where one is missing it loads a snapshot.",
			`understudy_snapshot_loads_total{reason="gap"}`},
		{[]string{"ha_oplog_checksum_failures_total"},
			"A record that cannot be decoded makes a standby load a snapshot.",
			`understudy_snapshot_loads_total{reason="corrupt"}`},
		{[]string{"ha_oplog_etcd_write_retries_total"},
			"Attempts of one commit are part of its duration.",
			"understudy_commit_duration_seconds"},
		{[]string{"ha_oplog_watch_disconnections_total"},
			"A watch that ends is begun anew from where it stopped; what counts is whether the standby keeps up.",
			"understudy_lag_seconds, understudy_commit_age_seconds"},
		{[]string{"ha_oplog_apply_latency_us"},
			"Changes are applied a commit at a time.",
			"understudy_apply_duration_seconds"},
		{[]string{"ha_oplog_batch_commits_total", "ha_oplog_sync_batch_commits_total", "ha_batch_record_*"},
			"Every commit is a batch, and all of them are synchronous.",
			"understudy_commit_duration_seconds, understudy_commit_bytes, understudy_commit_changes"},
	}
}
