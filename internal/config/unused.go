package config

import (
	"cmp"
	"strconv"
	"strings"
)

// Unused returns the names that Mooncake's master has and Understudy does not
// use, as settings without a field whose Usage says why. They are accepted with
// a warning, so that a file written for Mooncake loads; a value that turns on
// something that is not there is refused, so that nobody relies on it by mistake.
func Unused() (list []Setting) {
	for _, row := range unused {
		for name := range strings.FieldsSeq(row.names) {
			list = append(list, Setting{Names: name, From: mooncake, value: row.accept, Usage: row.reason})
		}
	}
	return list
}

// Values that ask for nothing which is not there.
var (
	anyText = value{Allowed: "any value", set: anything[string]}
	anyBool = value{Kind: boolKind, Allowed: "true or false", set: func(s string) bool {
		_, err := strconv.ParseBool(s)
		return err == nil
	}}
	off = value{Kind: boolKind, Allowed: "false", set: func(s string) bool {
		on, err := strconv.ParseBool(s)
		return err == nil && !on
	}}
)

// only is the one value that asks for nothing which is not there.
func only(word string) value {
	return value{Allowed: cmp.Or(word, "empty"), set: func(s string) bool { return s == word }}
}

// Reasons that several names share.
const (
	goRuntime   = "the Go runtime finds its number of threads by itself"
	toStderr    = "logs go to standard error; see log-level and log-format"
	oneTenant   = "there is one tenant, default"
	atPutEnd    = "objects are copied to SSDs when their put ends, not when they are evicted"
	noPromotion = "objects on an SSD are read there; they are not copied back to memory"
	noDiskSize  = "DISK replicas are kept as metadata; their space is not managed"
	noNoF       = "there is no NVMe-oF pool"
	noCXL       = "there is no CXL memory"
	noDynamic   = "there is no dynamic replication"
	noEvents    = "no KV events are published"
	noFiles     = "there are no snapshot files; a node loads its snapshot from the primary"
	noTasks     = "there are no copy and move tasks"
	journaled   = "the journal takes the oplog's place and is on whenever enable_ha is"
	onlyEtcd    = "etcd is the only HA backend; see etcd_endpoints"
	noMetadata  = "the transfer engine's metadata server is not part of this program; run Mooncake's own, or use P2PHANDSHAKE"
)

// unused is the table of them, with what each may be set to, and why.
var unused = []struct {
	names  string
	accept value
	reason string
}{
	{"rpc_thread_num max_threads", anyText, goRuntime},
	{"rpc_enable_tcp_no_delay", anyBool, "TCP_NODELAY is always set"},
	{"rpc_conn_timeout_seconds", anyText, "idle connections stay open; keepalive finds dead ones"},
	{"rpc_interface", only(""), "give the interface's address as rpc_address"},
	{"log_dir max_log_size minloglevel stderrthreshold v", anyText, toStderr},
	{"logtostderr alsologtostderr", anyBool, toStderr},

	{"memory_allocator", only("offset"), "the offset allocator is the only one"},
	{"client_suspicion_ttl_sec", anyText, "a silent client is not suspected first; it is gone after client_ttl"},
	{"enable_disk_eviction", anyBool, noDiskSize},
	{"quota_bytes global_file_segment_size", anyText, noDiskSize},

	{"ha_backend_type", only("etcd"), onlyEtcd},
	{"ha_backend_connstring", only(""), onlyEtcd},
	{"pod_name pod_namespace", anyText, onlyEtcd},
	{"enable_oplog enable_oplog_snapshot weight_management_oplog_capability_confirmed", anyBool, journaled},
	{"oplog_poll_interval_ms oplog_batch_max_entries batch_oplog_retry_timeout_sec", anyText, journaled},
	{"enable_snapshot enable_snapshot_restore", off, noFiles},
	{"snapshot_interval_seconds snapshot_child_timeout_seconds snapshot_retention_count", anyText, noFiles},
	{"snapshot_backup_dir snapshot_chunk_object_count snapshot_object_store_type", anyText, noFiles},
	{"snapshot_catalog_store_type snapshot_catalog_store_connstring snapshot_payload_store_type", anyText, noFiles},
	{"snapshot_catalog_backend_type snapshot_catalog_backend_connstring snapshot_payload_backend_type", anyText, noFiles},

	{"enable_multi_tenants", off, oneTenant},
	{"tenant_quota_connector_type tenant_quota_connector_uri tenant_eviction_high_watermark_ratio", anyText, oneTenant},
	{"offload_on_evict offload_force_evict", off, atPutEnd},
	{"offload_cap_ratio", anyText, atPutEnd},
	{"promotion_on_hit", off, noPromotion},
	{"promotion_admission_threshold promotion_queue_limit promotion_max_per_heartbeat", anyText, noPromotion},
	{"nof_eviction_ratio nof_eviction_high_watermark_ratio", anyText, noNoF},
	{"nof_heartbeat_interval_sec nof_heartbeat_probe_timeout_ms nof_heartbeat_failures_threshold", anyText, noNoF},
	{"enable_cxl", off, noCXL},
	{"cxl_path cxl_size", anyText, noCXL},
	{"dynamic_replication_mode", only("off"), noDynamic},
	{"dynamic_replication_heat_window_seconds dynamic_replication_admission_qps_threshold", anyText, noDynamic},
	{"dynamic_replication_max_memory_replicas", anyText, noDynamic},
	{"max_total_finished_tasks max_total_pending_tasks max_total_processing_tasks", anyText, noTasks},
	{"pending_task_timeout_sec processing_task_timeout_sec max_retry_attempts", anyText, noTasks},

	{"enable_http_metadata_server", off, noMetadata},
	{"http_metadata_server_host http_metadata_server_port", anyText, noMetadata},
	{"enable_metadata_cleanup_on_timeout", anyBool, noMetadata},
	{"enable_kv_events", off, noEvents},
	{"kv_events_bind_endpoint kv_events_queue_capacity kv_events_block_size kv_events_dp_rank", anyText, noEvents},
	{"kv_events_additional_salt kv_events_backend_id kv_events_lora_name", anyText, noEvents},
	{"kv_events_model_name kv_events_tenant_id", anyText, noEvents},
	{"kv_events_emit_legacy_compat kv_events_emit_object_key", anyBool, noEvents},
}
