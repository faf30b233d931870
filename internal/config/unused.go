package config

import (
	"slices"
	"strconv"
	"strings"
)

// Unused returns the names that Mooncake's master has and Understudy does not use, as
// settings without a field; their Usage says why. They are accepted, so that a file written
// for Mooncake loads. A value that asks for something gets a warning; Mooncake's default,
// which asks for nothing, does not. Only values that would do harm are refused.
func Unused() (list []Setting) {
	for _, row := range unused {
		for names := range strings.FieldsSeq(row.names) {
			name, neutral, _ := strings.Cut(names, "=")
			accept := row.accept
			accept.neutral = strings.Split(strings.ReplaceAll(neutral, "-", ""), "|")
			list = append(list, Setting{Names: name, From: mooncake, value: accept, Usage: row.reason})
		}
	}
	return list
}

// asksFor reports whether a text asks for something that Understudy does not have.
func (s *Setting) asksFor(text string) bool {
	if on, ok := parseBool(text); ok && s.Kind == boolKind {
		text = strconv.FormatBool(on)
	}
	return !slices.Contains(s.neutral, text)
}

// The values that are accepted.
var (
	anyText = value{Allowed: "any value", set: anything[string]}
	anyBool = value{Kind: boolKind, Allowed: "true or false", set: func(s string) bool {
		_, ok := parseBool(s)
		return ok
	}}
)

// onlyWithHA accepts the one value that does no harm. Without HA the loader takes any (needsHA).
func onlyWithHA(word string) value {
	return value{Allowed: word + ", or any value with enable_ha=false", set: func(s string) bool { return s == word }}
}

// Reasons that several names share.
const (
	goRuntime  = "the Go runtime finds its number of threads by itself"
	toStderr   = "logs go to standard error; see log-level and log-format"
	forced     = "with offload_on_evict, an object that no client has room to copy, or has copied after 30 s, is always evicted"
	noDiskSize = "DISK replicas are kept as metadata; their space is not managed"
	noNoF      = "there is no NVMe-oF pool"
	noCXL      = "there is no CXL memory"
	noEvents   = "it stands in no event; an indexer gets it when the publisher is registered there"
	noFiles    = "the journal and the state files (see state-dir) take the place of snapshot files"
	noTasks    = "the limits of copy and move tasks are fixed, at the defaults"
	journaled  = "the journal takes the oplog's place and is on whenever enable_ha is"
	onlyEtcd   = "etcd is the only HA backend; see etcd_endpoints. Nodes that look elsewhere would not find each other"
)

// unused is the table of them: names, each with the values that ask for nothing
// ('-' is empty), what they may be set to, and why they are not used.
var unused = []struct {
	names  string
	accept value
	reason string
}{
	{"rpc_thread_num=16|0 max_threads=16", anyText, goRuntime},
	{"rpc_enable_tcp_no_delay=true", anyBool, "TCP_NODELAY is always set"},
	{"rpc_conn_timeout_seconds=0", anyText, "idle connections stay open; keepalive finds dead ones"},
	{"log_dir=- max_log_size=1800 minloglevel=0 stderrthreshold=2 v=0 vmodule=- logbufsecs=30 logbuflevel=0", anyText, toStderr},
	{"log_link=- logfile_mode=436 logcleansecs=300 log_backtrace_at=- logmailer=- logemaillevel=999 alsologtoemail=-", anyText, toStderr},
	{"logtostderr=true alsologtostderr=true|false logtostdout=false log_prefix=true log_year_in_prefix=true log_utc_time=false", anyBool, toStderr},
	{"colorlogtostderr=true|false colorlogtostdout=true|false drop_log_memory=true stop_logging_if_full_disk=false", anyBool, toStderr},
	{"timestamp_in_logfile_name=true symbolize_stacktrace=true", anyBool, toStderr},

	{"memory_allocator=offset", anyText, "the offset allocator is the only one, and takes the place of others"},
	{"client_suspicion_ttl_sec", anyText, "a silent client is not suspected first; it is gone after client_ttl"},
	{"global_file_segment_size=9223372036854775807", anyText, noDiskSize},

	{"ha_backend_type=etcd", onlyWithHA("etcd"), onlyEtcd},
	{"pod_name=- pod_namespace=-", anyText, onlyEtcd},
	{"enable_oplog=false enable_oplog_snapshot=false weight_management_oplog_capability_confirmed=false", anyBool, journaled},
	{"oplog_poll_interval_ms=1000 oplog_batch_max_entries=1024 batch_oplog_retry_timeout_sec=180", anyText, journaled},
	{"enable_snapshot=false enable_snapshot_restore=false", anyBool, noFiles},
	{"snapshot_interval_seconds=600 snapshot_child_timeout_seconds=300 snapshot_retention_count=2", anyText, noFiles},
	{"snapshot_backup_dir=- snapshot_chunk_object_count snapshot_object_store_type=-", anyText, noFiles},
	{"snapshot_catalog_store_type=- snapshot_catalog_store_connstring=- snapshot_payload_store_type=-", anyText, noFiles},
	{"snapshot_catalog_backend_type=- snapshot_catalog_backend_connstring=- snapshot_payload_backend_type=-", anyText, noFiles},

	{"offload_force_evict=false", anyBool, forced},
	{"offload_cap_ratio=0.5", anyText, forced},
	{"nof_eviction_ratio=0.05 nof_eviction_high_watermark_ratio=0.9", anyText, noNoF},
	{"nof_heartbeat_interval_sec=10 nof_heartbeat_probe_timeout_ms=1000 nof_heartbeat_failures_threshold=3", anyText, noNoF},
	{"enable_cxl=false", anyBool, noCXL},
	{"cxl_path=/dev/dax0.0 cxl_size=8589934592", anyText, noCXL},
	{"max_total_finished_tasks=10000 max_total_pending_tasks=10000 max_total_processing_tasks=10000", anyText, noTasks},
	{"pending_task_timeout_sec=300 processing_task_timeout_sec=300 max_retry_attempts=10", anyText, noTasks},

	{"kv_events_block_size=0 kv_events_dp_rank=0 kv_events_model_name=- kv_events_tenant_id=default", anyText, noEvents},
	{"kv_events_additional_salt=- kv_events_lora_name=-", anyText, noEvents},
}
