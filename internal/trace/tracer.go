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
	sendEvery   = 2 * time.Second  // or sooner, when maxBatch spans wait
	sendTimeout = 10 * time.Second // for a batch, with what is tried again
	stopTimeout = 2 * time.Second  // for what is left at the end of the process
	maxWaiting  = 2048             // spans; further ones are dropped
	maxBatch    = 512
)

// Config is for [Start].
type Config struct {
	// TracesEndpoint is the URL of a collector that speaks OTLP over HTTP, such as
	// http://127.0.0.1:4318; /v1/traces is added unless the URL ends with it. With "" nothing is traced.
	TracesEndpoint string
	// TracesShare is which share of the operations is sampled, 0 to 1. With 0 this process begins no journeys, and goes
	// on with those that others began.
	TracesShare float64
	// TracesHeaders are sent to the collector: name=value, separated by commas, values escaped as in URLs. They are secret.
	TracesHeaders string
	// Version and Role say what the process is.
	Version, Role string
	// Logger is told when the collector takes nothing, and when it does again. Required.
	Logger *slog.Logger
}

// Validate says which fields are not allowed, and what is. Each line of the error begins with the name of the field.
func (c Config) Validate() error {
	var errs []error
	if u, err := url.Parse(c.TracesEndpoint); c.TracesEndpoint != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "") {
		errs = append(errs, errors.New("TracesEndpoint is not allowed: it must be the URL of a collector without a user or a query, such as http://127.0.0.1:4318"))
	}
	if !(c.TracesShare >= 0 && c.TracesShare <= 1) { // also what is no number
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

// Tracer begins and continues journeys. A nil Tracer traces nothing.
type Tracer struct {
	share    float64
	tracer   trace.Tracer
	provider *sdk.TracerProvider
	exporter *exporter
	log      *slog.Logger
}

// Start returns a Tracer, nil if none is wanted. It asks nothing of the collector. Error: the configuration is not
// allowed.
//
// Cost: a goroutine, and at most some megabytes for spans that wait.
func Start(ctx context.Context, c Config) (*Tracer, error) {
	if err := c.Validate(); err != nil || c.TracesEndpoint == "" {
		return nil, err
	}
	headers, _ := c.headers()
	// The variables of OpenTelemetry for certificates and compression count.
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
	t.provider = sdk.NewTracerProvider(sdk.WithSampler(sdk.AlwaysSample()), sdk.WithResource(about), // it has been drawn before
		sdk.WithBatcher(t.exporter, sdk.WithBatchTimeout(sendEvery), sdk.WithExportTimeout(sendTimeout), sdk.WithMaxQueueSize(maxWaiting), sdk.WithMaxExportBatchSize(maxBatch)))
	t.tracer = t.provider.Tracer("tideline")
	on.Store(true)
	return t, nil
}

// Stop sends what waits, for stopTimeout at most, also when ctx has ended, and drops the rest.
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
	Sent uint64 // the collector has taken them
	Lost uint64 // of batches that it did not take; those dropped because too many waited do not count
}

// Stats returns the counters.
func (t *Tracer) Stats() Stats { return Stats{t.exporter.sent.Load(), t.exporter.lost.Load()} }

// exporter says when the collector takes nothing, once, and when it does again.
type exporter struct {
	sdk.SpanExporter
	log        *slog.Logger
	sent, lost atomic.Uint64
	failing    atomic.Bool
}

// ExportSpans see sdk.SpanExporter. It is called by one goroutine at a time.
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
