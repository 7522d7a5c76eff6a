package trace

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	sendEvery   = 2 * time.Second  // or earlier, when maxBatch spans wait
	sendTimeout = 10 * time.Second // for a batch, including retries
	stopTimeout = 2 * time.Second  // for the spans left when the process ends
	maxWaiting  = 2048             // spans; more are dropped
	maxBatch    = 512
)

// Config configures [Start].
type Config struct {
	// TracesEndpoint is the URL of a collector that accepts OTLP over HTTP, such as
	// http://127.0.0.1:4318; /v1/traces is appended unless the URL ends with it. If it is "",
	// nothing is traced.
	TracesEndpoint string
	// TracesShare is the share of operations that are sampled, 0 to 1. With 0, this process begins
	// no traces, but continues traces of other processes.
	TracesShare float64
	// TracesHeaders are sent to the collector: name=value, separated by commas, values escaped as
	// in URLs. They are secret.
	TracesHeaders string
	// Version and Role describe the process.
	Version, Role string
	// Logger receives a message when the collector rejects spans, and when it accepts them again.
	// Required.
	Logger *slog.Logger
}

// Validate returns an error that lists the invalid fields and the allowed values. Each line begins
// with the name of a field.
func (c Config) Validate() error {
	var errs []error
	if u, err := url.Parse(c.TracesEndpoint); c.TracesEndpoint != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "") {
		errs = append(errs, errors.New("TracesEndpoint is not allowed: it must be the URL of a collector without a user or a query, such as http://127.0.0.1:4318"))
	}
	if !(c.TracesShare >= 0 && c.TracesShare <= 1) { // also false for NaN
		errs = append(errs, fmt.Errorf("TracesShare is %v: it must be 0 to 1", c.TracesShare))
	}
	if _, err := c.headers(); err != nil {
		errs = append(errs, errors.New("TracesHeaders cannot be read: it must be name=value, separated by commas, values escaped as in URLs"))
	}
	return errors.Join(errs...)
}

func (c Config) headers() (map[string]string, error) {
	headers := map[string]string{}
	if c.TracesHeaders == "" {
		return headers, nil
	}
	for _, part := range strings.Split(c.TracesHeaders, ",") {
		name, value, found := strings.Cut(strings.TrimSpace(part), "=")
		value, err := url.PathUnescape(value)
		if err != nil || !found || name == "" || strings.ContainsAny(name, " :\r\n") || strings.ContainsAny(value, "\r\n") {
			return nil, errors.New("no header")
		}
		headers[name] = value
	}
	return headers, nil
}

func (c Config) url() string {
	return strings.TrimSuffix(strings.TrimSuffix(c.TracesEndpoint, "/"), "/v1/traces") + "/v1/traces"
}

// Tracer begins and continues traces. A nil Tracer traces nothing.
type Tracer struct {
	share    float64
	tracer   trace.Tracer
	provider *sdk.TracerProvider
	exporter *exporter
	log      *slog.Logger
}

// Start returns a Tracer, or nil if TracesEndpoint is "". It does not contact the collector. It
// fails when the configuration is invalid.
//
// Cost: one goroutine, and at most some megabytes for waiting spans.
func Start(ctx context.Context, c Config) (*Tracer, error) {
	if err := c.Validate(); err != nil || c.TracesEndpoint == "" {
		return nil, err
	}
	headers, _ := c.headers()
	// The OpenTelemetry variables for certificates and compression apply.
	client, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(c.url()), otlptracehttp.WithHeaders(headers), otlptracehttp.WithTimeout(sendTimeout),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second, MaxElapsedTime: sendTimeout}))
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	return start(ctx, c, client)
}

func start(ctx context.Context, c Config, client sdk.SpanExporter) (*Tracer, error) {
	about, err := resource.New(ctx, resource.WithHost(), resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "tideline"), attribute.String("service.version", c.Version),
		attribute.String("service.instance.id", rand.Text()), attribute.String("tideline.role", c.Role)), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("trace: what this process is: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { c.Logger.Debug("traces", "error", err) }))
	t := &Tracer{share: c.TracesShare, log: c.Logger, exporter: &exporter{SpanExporter: client, log: c.Logger}}
	t.provider = sdk.NewTracerProvider(sdk.WithSampler(sdk.AlwaysSample()), sdk.WithResource(about), // Operation samples
		sdk.WithBatcher(t.exporter, sdk.WithBatchTimeout(sendEvery), sdk.WithExportTimeout(sendTimeout), sdk.WithMaxQueueSize(maxWaiting), sdk.WithMaxExportBatchSize(maxBatch)))
	t.tracer = t.provider.Tracer("tideline")
	on.Store(true)
	return t, nil
}

// Stop sends the waiting spans, for at most stopTimeout even if ctx has ended, and drops the rest.
func (t *Tracer) Stop(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.WarnContext(ctx, "the last spans are not sent", "error", err)
	}
}

// Stats counts spans since the start.
type Stats struct {
	Sent uint64 // accepted by the collector
	Lost uint64 // in batches that failed; spans dropped from a full queue do not count
}

// Stats returns the counters.
func (t *Tracer) Stats() Stats { return Stats{t.exporter.sent.Load(), t.exporter.lost.Load()} }

// exporter counts spans, and logs once when the collector rejects spans and once when it accepts
// them again.
type exporter struct {
	sdk.SpanExporter
	log        *slog.Logger
	sent, lost atomic.Uint64
	failing    atomic.Bool
}

// ExportSpans implements sdk.SpanExporter. It is called by one goroutine at a time.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		e.lost.Add(uint64(len(spans)))
		if !e.failing.Swap(true) {
			e.log.WarnContext(ctx, "the collector takes no spans; they are dropped", "error", err)
		}
		return nil
	}
	e.sent.Add(uint64(len(spans)))
	if e.failing.Swap(false) {
		e.log.InfoContext(ctx, "the collector takes spans again")
	}
	return nil
}
