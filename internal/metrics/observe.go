package metrics

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/promote"
)

// The parts of a node call these methods when something happens. The methods may be
// called from any goroutine, and do not block.

var _ journal.Observer = (*Metrics)(nil)

// Call reports the end of a call, of gRPC or of Mooncake's protocol, by its full method
// name, such as /understudy.v1.ObjectService/PutStart. Methods must come from a fixed set.
func (m *Metrics) Call(ctx context.Context, method string, code codes.Code, took time.Duration) {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	service = service[strings.LastIndexByte(service, '.')+1:]
	observe(ctx, m.calls.WithLabelValues(service+"/"+name, code.String()), took.Seconds())
}

// Slowed reports a connection of gRPC that is not read for a while, since it sends more than its
// calls need, or is closed for that.
func (m *Metrics) Slowed(closed bool) {
	outcome := "slowed"
	if closed {
		outcome = "closed"
	}
	m.slowed.WithLabelValues(outcome).Inc()
}

// observe adds a value. If its trace is recorded, the trace's id is the exemplar.
func observe(ctx context.Context, to prometheus.Observer, value float64) {
	if span := trace.SpanContextFromContext(ctx); span.IsSampled() {
		to.(prometheus.ExemplarObserver).ObserveWithExemplar(value, prometheus.Labels{"trace_id": span.TraceID().String()})
		return
	}
	to.Observe(value)
}

// Committed reports a commit: see journal.Observer.
func (m *Metrics) Committed(ctx context.Context, changes, bytes int, log, apply time.Duration) {
	observe(ctx, m.commit, log.Seconds())
	m.commitMicros.Observe(float64(log.Microseconds()))
	observe(ctx, m.apply, apply.Seconds())
	if changes > 0 {
		m.changes.Observe(float64(changes))
		m.bytes.Observe(float64(bytes))
	}
}

// Refused reports a commit that the log refused: see journal.Observer.
func (m *Metrics) Refused(_ int, err error) {
	reason := refusedOther
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		reason = refusedNoSpace
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrTooManyOps):
		reason = refusedTooLarge
	}
	m.refused.WithLabelValues(reason).Inc()
	m.writeFailures.Inc()
	m.failures.Add(1)
}

// Reserved reports that memory was reserved for an object of so many bytes:
// see service.Counters.
func (m *Metrics) Reserved(size uint64) { m.values.Observe(float64(size)) }

func (m *Metrics) takeover(t promote.Takeover) {
	for phase, took := range phases(t) {
		m.takeovers.WithLabelValues(phase).Observe(took.Seconds())
	}
	m.cleaned.Add(float64(t.Objects))
	m.cleanedBytes.Add(float64(t.Bytes))
}

func phases(t promote.Takeover) map[string]time.Duration {
	return map[string]time.Duration{
		"elect": t.Elect, "catch_up": t.CatchUp, "begin": t.Begin, "clean": t.Clean, "announce": t.Announce,
	}
}
