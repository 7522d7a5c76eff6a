// Package metrics counts what a process does, for Prometheus. It knows the name of every metric.
package metrics

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"tideline/feed/ids"
	"tideline/feed/job"
	"tideline/feed/stream"
	"tideline/feed/webhook"
	"tideline/internal/fleet"
	"tideline/internal/trace"
	"tideline/live"
	"tideline/queue"
	"tideline/server/machine"
	"tideline/workers"
)

// Metrics are the Prometheus metrics of this process. The values of their labels come from fixed
// sets, so no client can add one.
type Metrics struct {
	registry *prometheus.Registry

	requests        *prometheus.CounterVec
	requestSeconds  *prometheus.HistogramVec
	subscriptions   atomic.Int64
	slowSockets     prometheus.Counter
	timelineReads   *prometheus.CounterVec
	jobs            *prometheus.CounterVec
	jobSeconds      *prometheus.HistogramVec
	jobWaitSeconds  *prometheus.HistogramVec
	queueDepth      *prometheus.GaugeVec
	queueOldest     *prometheus.GaugeVec
	deadJobs        prometheus.Gauge
	fanOutFollowers prometheus.Histogram
	fanOutTook      *prometheus.CounterVec
	fanOutSeconds   prometheus.Histogram
	fanOutLag       *prometheus.HistogramVec
	audited         *prometheus.CounterVec
	lagging         prometheus.Gauge
	canarySeconds   *prometheus.GaugeVec
	checks          *prometheus.GaugeVec
	webhooks        *prometheus.CounterVec
	webhookSeconds  prometheus.Histogram
	webhooksPending prometheus.Gauge
	webhooksDead    prometheus.Gauge
	webhookOldest   prometheus.Gauge
	stores          stores
}

// New returns the metrics of a process with this version and commit.
func New(version, commit string) *Metrics {
	// From a tenth of a millisecond to nearly two minutes, doubling.
	seconds := prometheus.ExponentialBuckets(0.0001, 2, 21)
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	timings := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds}, labels)
	}
	m := &Metrics{
		registry:        prometheus.NewRegistry(),
		requests:        counters("tideline_graphql_requests_total", "GraphQL operations by kind (query, mutation, subscription; invalid before it is known) and the code of their first error (OK without).", "kind", "code"),
		requestSeconds:  timings("tideline_graphql_request_seconds", "Time to execute queries and mutations.", "kind"),
		slowSockets:     prometheus.NewCounter(prometheus.CounterOpts{Name: "tideline_slow_sockets_total", Help: "Sockets closed because their client did not read."}),
		timelineReads:   counters("tideline_timeline_reads_total", "Timeline pages by whether the inbox served them (hit) or SQL did (miss).", "inbox"),
		jobs:            counters("tideline_jobs_total", "Attempts at jobs by kind, pool and outcome.", "kind", "pool", "outcome"),
		jobSeconds:      timings("tideline_job_seconds", "Duration of attempts at jobs.", "kind"),
		jobWaitSeconds:  timings("tideline_job_wait_seconds", "Time from a job's enqueueing to its first attempt.", "pool"),
		queueDepth:      gauges("tideline_queue_jobs", "Jobs outstanding, running ones included.", "pool"),
		queueOldest:     gauges("tideline_queue_oldest_seconds", "Age of the oldest outstanding job.", "pool"),
		deadJobs:        gauge("tideline_jobs_dead", "Jobs given up, waiting for an operator."),
		fanOutFollowers: histogram("tideline_fanout_followers", "Followers that a post was fanned out to.", prometheus.ExponentialBuckets(1, 4, 13)),
		fanOutTook:      counters("tideline_fanout_deliveries_total", "Inboxes that took a post, and connections that were told of one.", "to"),
		fanOutSeconds:   histogram("tideline_fanout_seconds", "Duration of a post's fan-out, or of a part of it.", seconds),
		fanOutLag:       timings("tideline_fanout_lag_seconds", "Time from a post's creation to its first and its last follower.", "follower"),
		audited:         counters("tideline_audit_total", "Timelines sampled and compared with SQL, and the entries missing or extra in them.", "what"),
		lagging:         gauge("tideline_jobs_lagging", "1 while a job of some pool has waited longer than 30 seconds."),
		checks:          gauges("tideline_check", "1 for the state that a part of /readyz is in, 0 for the others.", "check", "state"),
		webhooks:        counters("tideline_webhooks_total", "Attempts to deliver webhooks by outcome: delivered, failed (tried again), given_up, returned (the process stopped).", "outcome"),
		webhookSeconds:  histogram("tideline_webhook_seconds", "Duration of attempts to deliver webhooks.", seconds),
		webhooksPending: gauge("tideline_webhooks_pending", "Webhooks not delivered yet, counted for each endpoint."),
		webhooksDead:    gauge("tideline_webhooks_dead", "Webhooks given up, which can be replayed."),
		webhookOldest:   gauge("tideline_webhooks_oldest_seconds", "Age of the oldest webhook that is not delivered yet."),
		canarySeconds:   gauges("tideline_canary_seconds", "Time that the last canary took from just before it was enqueued to a subscriber of this process; while it does not arrive, its age.", "to"),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tideline_build_info", Help: "Always 1; the labels say which program this is.",
		ConstLabels: prometheus.Labels{"version": version, "commit": commit, "go": runtime.Version()},
	})
	info.Set(1)
	m.registry.MustRegister(
		gaugeOf("tideline_live_subscriptions", "Subscriptions under way.", m.Serving),
		info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.requests, m.requestSeconds, m.slowSockets, m.timelineReads,
		m.jobs, m.jobSeconds, m.jobWaitSeconds, m.queueDepth, m.queueOldest, m.deadJobs,
		m.fanOutFollowers, m.fanOutTook, m.fanOutSeconds, m.fanOutLag,
		m.audited, m.lagging, m.canarySeconds, m.checks,
		m.webhooks, m.webhookSeconds, m.webhooksPending, m.webhooksDead, m.webhookOldest, &m.stores,
	)
	return m
}

// Health implements workers.Config.ObserveHealth.
func (m *Metrics) Health(h workers.Health) {
	m.audited.WithLabelValues("timelines").Add(float64(h.Sampled))
	m.audited.WithLabelValues("missing").Add(float64(h.Missing))
	m.audited.WithLabelValues("extra").Add(float64(h.Extra))
}

// Canary implements workers.Canary.Observe.
func (m *Metrics) Canary(took time.Duration) {
	m.canarySeconds.WithLabelValues("subscriber").Set(took.Seconds())
}

// Checked records whether a part of /readyz is in the state now.
func (m *Metrics) Checked(check, state string, is bool) {
	value := 0.0
	if is {
		value = 1
	}
	m.checks.WithLabelValues(check, state).Set(value)
}

// Certificate adds the time at which the certificate of the address expires.
func (m *Metrics) Certificate(end time.Time) {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tideline_tls_certificate_end_timestamp_seconds", Help: "When the certificate that this process serves ends, in seconds since 1970.",
	})
	g.Set(float64(end.Unix()))
	m.registry.MustRegister(g)
}

// MeasureDisk adds the size and the free space of the disk that contains dir, if the system tells
// them. Each scrape reads them.
func (m *Metrics) MeasureDisk(dir string) {
	if _, _, known := machine.DiskSpace(dir); !known {
		return
	}
	m.registry.MustRegister(
		gaugeOf("tideline_data_size_bytes", "Size of the disk that has the data directory.", func() int {
			size, _, _ := machine.DiskSpace(dir)
			return int(size)
		}),
		gaugeOf("tideline_data_free_bytes", "What is left of it for this process.", func() int {
			_, free, _ := machine.DiskSpace(dir)
			return int(free)
		}),
	)
}

// CountSockets adds the number of open sockets. Each scrape calls count.
func (m *Metrics) CountSockets(count func() int) {
	m.registry.MustRegister(gaugeOf("tideline_sockets", "WebSocket connections open.", count))
}

// CountWorkers adds the jobs in progress and the pause of this process's workers. Each scrape reads them.
func (m *Metrics) CountWorkers(w fleet.Workers) {
	m.registry.MustRegister(
		gaugeOf("tideline_worker_jobs", "Jobs under way in this process.", w.UnderWay),
		gaugeOf("tideline_worker_paused", "1 while an operator has paused the workers of this process: they take no new job.", func() int {
			if w.Paused() {
				return 1
			}
			return 0
		}),
	)
}

// CountStreams adds the streams that are still catching up or waiting to, and the clients that were told
// to read their timeline again.
func (m *Metrics) CountStreams(stats func() stream.Stats) {
	for state, value := range map[string]func(stream.Stats) int{
		"waiting":     func(s stream.Stats) int { return s.Waiting },
		"catching_up": func(s stream.Stats) int { return s.CatchingUp },
	} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tideline_streams", Help: "Streams of timelines and conversations that read what they missed (catching_up), or wait for their turn to do so (waiting).",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(value(stats())) }))
	}
	for reason := range stats().Invalidated {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "tideline_streams_invalidated_total", Help: "Clients that were told by TimelineInvalidated or ConversationInvalidated to read again, by the reason.",
			ConstLabels: prometheus.Labels{"reason": string(reason)},
		}, func() float64 { return float64(stats().Invalidated[reason]) }))
	}
}

// CountSpans adds the trace spans that were sent or lost.
func (m *Metrics) CountSpans(stats func() trace.Stats) {
	for outcome, value := range map[string]func(trace.Stats) uint64{
		"sent": func(s trace.Stats) uint64 { return s.Sent },
		"lost": func(s trace.Stats) uint64 { return s.Lost },
	} {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "tideline_trace_spans_total", Help: "Spans that the collector took (sent), and those of batches that it did not take (lost).",
			ConstLabels: prometheus.Labels{"outcome": outcome},
		}, func() float64 { return float64(value(stats())) }))
	}
}

// gaugeOf returns a gauge whose value is read by each scrape.
func gaugeOf(name, help string, value func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
}

// CountIDs adds the state of an id generator. Each scrape reads it.
func (m *Metrics) CountIDs(stats func() ids.Stats) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tideline_ids_ready", Help: "1 while this process has a number for new ids; without one it refuses posts and sign-ups.",
		}, func() float64 {
			if stats().Ready {
				return 1
			}
			return 0
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "tideline_ids_leases_total", Help: "Numbers for new ids that this process has taken: 1 without a disturbance.",
		}, func() float64 { return float64(stats().Leases) }),
	)
}

// CountHub adds the counters of a hub. Each scrape reads them.
func (m *Metrics) CountHub(stats func() live.Stats) {
	for name, counter := range map[string]struct {
		help  string
		value func(live.Stats) uint64
	}{
		"tideline_live_messages_total":  {"Messages with live events received from Redis.", func(s live.Stats) uint64 { return s.Received }},
		"tideline_live_events_total":    {"Live events handed to subscriptions.", func(s live.Stats) uint64 { return s.Delivered }},
		"tideline_live_strays_total":    {"Recipients of live events that had no subscription here any more.", func(s live.Stats) uint64 { return s.Strays }},
		"tideline_live_lagged_total":    {"Subscriptions closed because their reader was too slow.", func(s live.Stats) uint64 { return s.Lagged }},
		"tideline_live_malformed_total": {"Messages from Redis that could not be read.", func(s live.Stats) uint64 { return s.Malformed }},
		"tideline_live_resyncs_total":   {"Times that a subscription was told to look for what it missed.", func(s live.Stats) uint64 { return s.Resyncs }},
		"tideline_live_connects_total":  {"Times that the hub came online: 1 without a disturbance.", func(s live.Stats) uint64 { return s.Connects }},
	} {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: counter.help},
			func() float64 { return float64(counter.value(stats())) }))
	}
}

// SlowSocket implements transport.Config.ObserveSlowSocket.
func (m *Metrics) SlowSocket() { m.slowSockets.Inc() }

// Registry returns the registry of all metrics.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Request implements transport.Config.ObserveRequest.
func (m *Metrics) Request(kind, code string, d time.Duration) {
	m.requests.WithLabelValues(kind, code).Inc()
	if d > 0 {
		m.requestSeconds.WithLabelValues(kind).Observe(d.Seconds())
	}
}

// Subscribed implements transport.Config.ObserveSubscriptions.
func (m *Metrics) Subscribed(change int) { m.subscriptions.Add(int64(change)) }

// Serving returns the number of subscriptions in progress.
func (m *Metrics) Serving() int { return int(m.subscriptions.Load()) }

// TimelineRead implements home.Config.Observe.
func (m *Metrics) TimelineRead(hit bool) {
	label := "miss"
	if hit {
		label = "hit"
	}
	m.timelineReads.WithLabelValues(label).Inc()
}

// Attempt implements queue.Config.Observe.
func (m *Metrics) Attempt(r queue.Result) {
	m.jobs.WithLabelValues(r.Kind, string(r.Pool), string(r.Outcome)).Inc()
	m.jobSeconds.WithLabelValues(r.Kind).Observe(r.Duration.Seconds())
	if r.Attempt == 1 {
		m.jobWaitSeconds.WithLabelValues(string(r.Pool)).Observe(r.Wait.Seconds())
	}
}

// Webhook implements webhook.Config.Observe.
func (m *Metrics) Webhook(outcome webhook.Outcome, took time.Duration) {
	m.webhooks.WithLabelValues(string(outcome)).Inc()
	m.webhookSeconds.Observe(took.Seconds())
}

// FanOut implements workers.Config.Observe.
func (m *Metrics) FanOut(f workers.FanOutReport) {
	if f.Part == 0 {
		m.fanOutFollowers.Observe(float64(f.Followers))
	}
	m.fanOutTook.WithLabelValues("inbox").Add(float64(f.Pushed))
	m.fanOutTook.WithLabelValues("connection").Add(float64(f.Live))
	m.fanOutSeconds.Observe(f.Duration.Seconds())
	if f.Kind != job.PostCreated { // the age of a post that changed later is not a lag
		return
	}
	if f.Part == 0 {
		m.fanOutLag.WithLabelValues("first").Observe(f.FirstLag.Seconds())
	}
	if f.Parts == 0 {
		m.fanOutLag.WithLabelValues("last").Observe(f.LastLag.Seconds())
	}
}
