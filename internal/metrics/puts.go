package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Latencies are a cumulative histogram: how many took at most each bound.
type Latencies struct {
	Count  uint64
	Bounds []float64 // seconds
	Counts []uint64
}

// Puts returns the latencies of the successful calls that began puts, of all protocols, since
// the start of this node.
func (m *Metrics) Puts() (all Latencies) {
	all.Bounds, all.Counts = seconds, make([]uint64, len(seconds))
	shown := make(chan prometheus.Metric)
	go func() {
		m.calls.Collect(shown)
		close(shown)
	}()
	for metric := range shown {
		var one dto.Metric
		if metric.Write(&one) != nil || !begins(&one) {
			continue
		}
		all.Count += one.GetHistogram().GetSampleCount()
		for i, b := range one.GetHistogram().GetBucket() {
			if i < len(all.Counts) {
				all.Counts[i] += b.GetCumulativeCount()
			}
		}
	}
	return all
}

// begins reports whether a metric is about successful calls that began puts.
func begins(one *dto.Metric) (begins bool) {
	ok := false
	for _, label := range one.GetLabel() {
		switch label.GetName() {
		case "method":
			begins = strings.HasSuffix(label.GetValue(), "/PutStart") || strings.HasSuffix(label.GetValue(), "/BatchPutStart")
		case "code":
			ok = label.GetValue() == "OK"
		}
	}
	return begins && ok
}
