// Package tracing sends OpenTelemetry traces of calls and commits to a collector, over
// OTLP and gRPC.
//
// It must never delay a call or a commit, nor take more memory than its queue: it drops
// spans that the collector does not accept in time. Spans hold no keys, except in the
// messages of errors. Nothing here is global: no provider is registered.
package tracing

import (
	"context"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/stats"

	"github.com/understudy-store/understudy/journal"
)

// Bounds of what waits for the collector. A span takes about 1 KiB.
const (
	queueSpans    = 4096
	batchSpans    = 512
	batchEvery    = time.Second
	exportTimeout = 10 * time.Second // of one export, with its repetitions
	flushTimeout  = time.Second      // of the last export, when the node stops
)

// Config configures a Tracing.
type Config struct {
	// Endpoint is the collector's http://host:port, or https for TLS with the system's
	// authorities. Headers and other authorities come from the variables of
	// OpenTelemetry, such as OTEL_EXPORTER_OTLP_HEADERS.
	Endpoint string
	// Ratio is the share, from 0 to 1, of the traces beginning here that are recorded. If
	// the caller of a call has a trace, the caller decides whether the call is recorded.
	Ratio                      float64
	ClusterID, NodeID, Version string
	Log                        zerolog.Logger
}

// Tracing records spans. All methods are safe for concurrent use.
type Tracing struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	exporter *logged
}

var _ journal.Tracer = (*Tracing)(nil)

// New returns a Tracing that connects to its collector in the background.
// It fails if the endpoint, or a variable of OpenTelemetry, cannot be used.
func New(c Config) (*Tracing, error) {
	exporter, err := otlptracegrpc.New(context.Background(),
		otlptracegrpc.WithEndpointURL(c.Endpoint),
		otlptracegrpc.WithTimeout(exportTimeout),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: exportTimeout / 2, MaxElapsedTime: exportTimeout}),
	)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Endpoint, err)
	}
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit = 256
	out := newLogged(exporter, c.Log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute}))
	provider := sdk.NewTracerProvider(
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(c.Ratio))),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "understudy"), attribute.String("service.version", c.Version),
			attribute.String("service.instance.id", c.NodeID), attribute.String("understudy.cluster_id", c.ClusterID),
		)),
		sdk.WithRawSpanLimits(limits),
		sdk.WithBatcher(out, sdk.WithMaxQueueSize(queueSpans), sdk.WithMaxExportBatchSize(batchSpans), sdk.WithBatchTimeout(batchEvery), sdk.WithExportTimeout(exportTimeout)),
	)
	return &Tracing{provider, provider.Tracer("github.com/understudy-store/understudy"), out}, nil
}

// Close sends the queued spans, for at most a second, and stops. On a nil Tracing it does
// nothing.
func (t *Tracing) Close() {
	if t == nil {
		return
	}
	within, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	_ = t.provider.Shutdown(within) // the exporter logs what it drops
	t.exporter.end()
	<-t.exporter.done
}

// ServerHandler records gRPC calls, except health checks.
func (t *Tracing) ServerHandler() stats.Handler {
	return otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithMeterProvider(noop.NewMeterProvider()),
		otelgrpc.WithPropagators(propagation.TraceContext{}),
		otelgrpc.WithFilter(func(i *stats.RPCTagInfo) bool {
			return i.FullMethodName != healthpb.Health_Check_FullMethodName && i.FullMethodName != healthpb.Health_Watch_FullMethodName
		}),
	)
}

// Call records a call of another protocol, by its full method name. The caller must call the
// returned function once, with the call's error.
func (t *Tracing) Call(ctx context.Context, method string) (context.Context, func(error)) {
	ctx, span := t.tracer.Start(ctx, method[1:], trace.WithSpanKind(trace.SpanKindServer))
	return ctx, func(err error) { finish(span, err) }
}

// Commit records a commit if one of the calls that wait for it is recorded: as a child
// of the first of these, with links to the others.
func (t *Tracing) Commit(ctx context.Context, head journal.Head, changes int, callers []context.Context) (context.Context, func(error)) {
	var links []trace.Link
	for _, caller := range callers {
		if span := trace.SpanContextFromContext(caller); span.IsSampled() && len(links) < sdk.DefaultLinkCountLimit {
			links = append(links, trace.Link{SpanContext: span})
		}
	}
	if len(links) == 0 {
		return ctx, func(error) {}
	}
	ctx, span := t.tracer.Start(trace.ContextWithSpanContext(ctx, links[0].SpanContext), "journal.commit", trace.WithLinks(links[1:]...),
		trace.WithAttributes(
			attribute.Int64("understudy.term", int64(head.Term)), attribute.Int64("understudy.sequence", int64(head.Seq)),
			attribute.Int("understudy.changes", changes), attribute.Int("understudy.submissions", len(callers)),
		))
	return ctx, func(err error) { finish(span, err) }
}

func finish(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// logged logs errors of an exporter, so that they do not go to OpenTelemetry's global handler.
type logged struct {
	sdk.SpanExporter
	log    zerolog.Logger
	ending context.Context
	end    context.CancelFunc // exports fail from then on
	done   chan struct{}      // closed when no more exports will come
}

func newLogged(exporter sdk.SpanExporter, log zerolog.Logger) *logged {
	l := &logged{SpanExporter: exporter, log: log, done: make(chan struct{})}
	l.ending, l.end = context.WithCancel(context.Background())
	return l
}

// Shutdown is called once, after the last export.
func (l *logged) Shutdown(ctx context.Context) error {
	defer close(l.done)
	return l.SpanExporter.Shutdown(ctx)
}

// ExportSpans sends spans, or drops them.
func (l *logged) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ending, cancel)()
	if err := l.SpanExporter.ExportSpans(ctx, spans); err != nil {
		l.log.Warn().Err(err).Int("spans", len(spans)).Msg("spans were dropped: the collector of --trace-endpoint does not take them")
	}
	return nil
}
