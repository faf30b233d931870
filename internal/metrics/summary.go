package metrics

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/understudy-store/understudy/internal/service"
)

// Summary returns the key figures as one line for people, in the manner of the
// C++ master's log. Requests are counted from the start of this node.
func (m *Metrics) Summary() string {
	s := m.take()
	var requests, items []string
	for _, c := range summarised {
		if o := s.calls.Of(c.op); isBatch(c.op) {
			items = append(items, ratio(c.name, o.Items.Load(), o.FailedItems.Load()))
		} else {
			requests = append(requests, ratio(c.name, o.Requests.Load(), o.Failures.Load()))
		}
	}
	parts := []string{
		fmt.Sprintf("Role: %s, term %d, applied %d of %d%s", s.status.Self.Role, s.term(), s.status.Position.Seq, s.committed(), s.lagText()),
		s.memoryText(),
		fmt.Sprintf("Keys: %d (soft-pinned: %d)", s.stats.Objects, s.stats.SoftPinned),
		fmt.Sprintf("Clients: %d", s.clients),
		"Requests (Success/Total): " + strings.Join(requests, ", "),
		"Batch Items (Success/Total): " + strings.Join(items, ", "),
		fmt.Sprintf("Eviction: Success/Attempts=%d/%d, keys=%d, size=%s", s.evictions.Successful.Load(), s.evictions.Attempted.Load(),
			s.evictions.Objects.Load(), humanize.IBytes(uint64(s.evictions.Bytes.Load()))),
		fmt.Sprintf("Queue: %d (%s)", s.submissions, humanize.IBytes(uint64(s.queueBytes))),
	}
	return strings.Join(parts, " | ")
}

func (s *scrape) lagText() string {
	if !s.lagKnown {
		return ""
	}
	return fmt.Sprintf(", lag %d (%.1f s)", s.lagEntries, s.lagTime.Seconds())
}

func (s *scrape) memoryText() string {
	text := fmt.Sprintf("Mem Storage: %s / %s", humanize.IBytes(s.stats.Busy), humanize.IBytes(s.stats.Capacity))
	if s.stats.Capacity > 0 {
		text += fmt.Sprintf(" (%.1f%%)", 100*float64(s.stats.Busy)/float64(s.stats.Capacity))
	}
	if s.stats.Quarantined > 0 {
		text += fmt.Sprintf(", in quarantine %s", humanize.IBytes(s.stats.Quarantined))
	}
	return text
}

// summarised are the calls that the summary names, as the C++ master names them.
var summarised = []struct {
	op   service.Op
	name string
}{
	{service.OpPutStart, "PutStart"}, {service.OpPutEnd, "PutEnd"}, {service.OpPutRevoke, "PutRevoke"},
	{service.OpGetReplicaList, "Get"}, {service.OpExistKey, "Exist"}, {service.OpRemove, "Del"},
	{service.OpRemoveByRegex, "DelByRegex"}, {service.OpRemoveAll, "DelAll"}, {service.OpPing, "Ping"},
	{service.OpBatchPutStart, "PutStart"}, {service.OpBatchPutEnd, "PutEnd"}, {service.OpBatchPutRevoke, "PutRevoke"},
	{service.OpBatchGetReplicaList, "Get"}, {service.OpBatchExistKey, "Exist"}, {service.OpBatchRemove, "Del"},
}

// ratio formats how many of all succeeded. all and failed are not read at the same moment.
func ratio(name string, all, failed int64) string {
	return fmt.Sprintf("%s=%d/%d", name, max(0, all-failed), all)
}
