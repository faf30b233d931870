package metrics

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/understudy-store/understudy/internal/service"
)

// MooncakeSummary returns what the C++ master writes between the braces of its
// /metrics/summary: its figures, and those of high availability. Figures that Understudy
// does not have are 0. Calls are given per second, over the time since a summary at least
// rateWindow ago, or since the start.
func (m *Metrics) MooncakeSummary() (master, ha string) {
	s := m.take()
	now := marks{at: m.src.Clock(), ops: make(map[service.Op]marked), noRoom: s.calls.AllocationFailures.Load(), partly: s.calls.PartialAllocations.Load()}
	for _, op := range service.Ops() {
		o := s.calls.Of(op)
		now.ops[op] = marked{o.Requests.Load(), o.Failures.Load(), o.Partial.Load(), o.Items.Load(), o.FailedItems.Load()}
	}
	return s.mooncakeMaster(now, m.window.begin(now)), s.mooncakeHA(m.failures.Load())
}

// rateWindow is the shortest time over which rates are computed, except after a start.
const rateWindow = 10 * time.Second

// A window is the time over which rates are computed.
type window struct {
	mu         sync.Mutex
	base, next marks
}

// marks are what was counted at a moment.
type marks struct {
	at             time.Duration
	ops            map[service.Op]marked
	noRoom, partly int64
}

type marked struct{ requests, failures, partial, items, failedItems int64 }

// begin returns the marks at the beginning of the window that ends now.
func (w *window) begin(now marks) marks {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.at-w.next.at >= rateWindow {
		w.base, w.next = w.next, now
	}
	return w.base
}

// The calls that the C++ master names, in its order.
var (
	namedCalls = []named{
		{service.OpPutStart, "PutStart"}, {service.OpPutEnd, "PutEnd"}, {service.OpPutRevoke, "PutRevoke"}, {service.OpGetReplicaList, "Get"},
		{service.OpExistKey, "Exist"}, {service.OpRemove, "Del"}, {service.OpRemoveAll, "DelAll"}, {service.OpPing, "Ping"},
		{service.OpCopyStart, "CopyStart"}, {service.OpCopyEnd, "CopyEnd"}, {service.OpCopyRevoke, "CopyRevoke"},
		{service.OpMoveStart, "MoveStart"}, {service.OpMoveEnd, "MoveEnd"}, {service.OpMoveRevoke, "MoveRevoke"},
		{service.OpEvictDiskReplica, "EvictDiskReplica"},
	}
	namedBatches = []named{
		{service.OpBatchPutStart, "PutStart"}, {service.OpBatchPutEnd, "PutEnd"}, {service.OpBatchPutRevoke, "PutRevoke"},
		{service.OpBatchGetReplicaList, "Get"}, {service.OpBatchExistKey, "ExistKey"}, {service.OpBatchQueryIP, "QueryIp"},
		{service.OpBatchReplicaClear, "Clear"},
	}
	namedTasks = []named{
		{service.OpCreateMoveTask, "CreateMoveTask"}, {service.OpCreateCopyTask, "CreateCopyTask"}, {service.OpQueryTask, "QueryTask"},
		{service.OpFetchTasks, "FetchTasks"}, {service.OpUpdateTask, "MarkTaskToComplete"},
	}
)

type named struct {
	op   service.Op
	name string
}

func (s *scrape) mooncakeMaster(now, base marks) string {
	st, e, p := s.stats, s.evictions, &s.calls.Promotions
	evicted := fmt.Sprintf("Success/Attempts=%d/%d, ", e.Successful.Load(), e.Attempted.Load())
	took := fmt.Sprintf("keys=%d, size=%s", e.Objects.Load(), mooncakeBytes(e.Bytes.Load()))
	memory := mooncakeBytes(int64(st.Busy)) + " / " + mooncakeBytes(int64(st.Capacity))
	if st.Capacity > 0 {
		memory += fmt.Sprintf(" (%.1f%%)", 100*float64(st.Busy)/float64(st.Capacity))
	}
	calls, batches := rates(now, base)
	return strings.Join([]string{
		"Mem Storage: " + memory,
		"NVMe-oF SSD: 0 B / 0 B",
		"SSD Storage: " + mooncakeBytes(st.DiskBytes) + " / " + mooncakeBytes(int64(s.fileCapacity+st.SSDCapacity)),
		fmt.Sprintf("Keys: %d (soft-pinned: %d)", st.Objects, st.SoftPinned),
		fmt.Sprintf("Clients: %d", s.clients),
		"Requests (Success/Total per sec): " + calls,
		"Batch Requests (per sec, Req=Success/PartialSuccess/Total, Item=Success/Total): " + batches,
		"Eviction: " + evicted + fmt.Sprintf("AllocFail=%d, PartialAlloc=%d, ", now.noRoom-base.noRoom, now.partly-base.partly) + took,
		"Mem Eviction: " + evicted + took,
		"NoF Eviction: Success/Attempts=0/0, keys=0, size=0 B",
		fmt.Sprintf("Discard: Released/Total=%d/%d, StagingSize=%s", st.DiscardsFreed, st.Discarded, mooncakeBytes(st.DiscardedBytes)),
		fmt.Sprintf("Promotion: in_flight=%d, admitted=%d, completed=%d, failed=%d, cancelled=%d, expired=%d, bytes=%s, rejected(freq/wm/cap)=%d/%d/%d",
			p.InFlight.Load(), p.Admitted.Load(), p.Completed.Load(), p.Failed.Load(), p.Cancelled.Load(), p.Expired.Load(),
			mooncakeBytes(p.CompletedBytes.Load()), p.RejectedFrequency.Load(), p.RejectedWatermark.Load(), p.RejectedCap.Load()),
		fmt.Sprintf("Snapshots: Success=%d, Fail=%d", s.status.Saving.Saves, s.status.Saving.Failures),
	}, " | ")
}

// rates formats the calls per second between two marks.
func rates(now, base marks) (calls, batches string) {
	rate := func(n int64) string {
		if elapsed := (now.at - base.at).Seconds(); elapsed > 0 {
			return fmt.Sprintf("%.2f", float64(max(0, n))/elapsed)
		}
		return "0.00"
	}
	of := func(op service.Op) (d marked) {
		a, b := now.ops[op], base.ops[op]
		return marked{a.requests - b.requests, a.failures - b.failures, a.partial - b.partial, a.items - b.items, a.failedItems - b.failedItems}
	}
	var singles, many []string
	for _, c := range namedCalls {
		d := of(c.op)
		singles = append(singles, c.name+"="+rate(d.requests-d.failures)+"/"+rate(d.requests))
	}
	for _, c := range namedBatches {
		d := of(c.op)
		many = append(many, fmt.Sprintf("%s:(Req=%s/%s/%s, Item=%s/%s)", c.name,
			rate(d.requests-d.failures-d.partial), rate(d.partial), rate(d.requests), rate(d.items-d.failedItems), rate(d.items)))
	}
	for _, c := range namedTasks {
		d := of(c.op)
		many = append(many, c.name+":(Req="+rate(d.requests-d.failures)+"/"+rate(d.requests)+")")
	}
	return strings.Join(singles, ", "), strings.Join(many, ", ")
}

func (s *scrape) mooncakeHA(writeFailures int64) string {
	return fmt.Sprintf("HA Metrics Summary: last_seq=%d, applied_seq=%d, lag=%d, pending=0, mutation_queue=%d, batch_commits=0, sync_commits=0, "+
		"skipped=0, checksum_fail=0, etcd_fail=%d, watch_disconn=0, state=%d",
		s.committed(), s.status.Position.Seq, s.lagEntries, s.submissions, writeFailures, standbyState(s.status.Self))
}

// mooncakeBytes writes a size as the C++ master does.
func mooncakeBytes(n int64) string {
	for at, unit := range []string{"TB", "GB", "MB", "KB"} {
		if size := int64(1) << (40 - 10*at); n >= size {
			return fmt.Sprintf("%.2f %s", float64(n)/float64(size), unit)
		}
	}
	return fmt.Sprintf("%d B", n)
}
