package admin

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"sync"
	"time"

	"tideline/ent"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/internal/fleet"
	"tideline/queue"
	"tideline/storage"
)

// Bounds of a snapshot.
const (
	maxProcesses = 200
	maxDead      = 50 // jobs that are listed; all others are only counted
	snapshotFor  = 5 * time.Second
	writeFor     = 10 * time.Second // a client that does not take a snapshot in this time loses its stream
	rest         = 10               // a snapshot is reused for this many times the time it took to make
)

// snapshot is the state that all viewers of the page share. Durations are in seconds.
type snapshot struct {
	At        time.Time          `json:"at"`
	Version   string             `json:"version"`
	Process   int64              `json:"process"` // the process that made the snapshot
	Failed    []string           `json:"failed"`  // parts that did not answer and are missing below
	Checks    map[string]string  `json:"checks"`
	Processes []listedProcess    `json:"processes"`
	Pools     []pool             `json:"pools"`
	Kinds     []kind             `json:"kinds"`
	Dead      int                `json:"dead"`
	DeadJobs  []listedJob        `json:"deadJobs"` // the first maxDead of them
	Webhooks  *webhooks          `json:"webhooks"`
	Stores    stores             `json:"stores"`
	Metrics   map[string]float64 `json:"metrics"` // of this process; see shown
}

type listedProcess struct {
	ID            int64       `json:"id"`
	Host          string      `json:"host"`
	PID           int         `json:"pid"`
	Version       string      `json:"version"`
	Roles         string      `json:"roles"`
	StartedAt     time.Time   `json:"startedAt"`
	SeenAt        time.Time   `json:"seenAt"`
	Subscriptions int         `json:"subscriptions"`
	Jobs          int         `json:"jobs"`
	State         fleet.State `json:"state"`
	Workers       bool        `json:"workers"`
}

type pool struct {
	Pool   queue.Pool `json:"pool"`
	Depth  int        `json:"depth"`
	Oldest float64    `json:"oldest"`
}

type kind struct {
	Kind  string     `json:"kind"`
	Pool  queue.Pool `json:"pool"`
	Depth int        `json:"depth"`
	Tried int        `json:"tried"`
	Dead  int        `json:"dead"`
}

type listedJob struct {
	ID        int64           `json:"id"`
	Kind      string          `json:"kind"`
	Pool      string          `json:"pool"`
	Dead      bool            `json:"dead"`
	Attempts  int             `json:"attempts"`
	Error     string          `json:"error"`
	Payload   json.RawMessage `json:"payload"`
	CreatedAt time.Time       `json:"createdAt"`
}

type webhooks struct {
	Pending int     `json:"pending"`
	Dead    int     `json:"dead"`
	Oldest  float64 `json:"oldest"`
}

type stores struct {
	SQL   sqlStore   `json:"sql"`
	Redis redisStore `json:"redis"`
}

type sqlStore struct {
	Dialect string  `json:"dialect"`
	Up      bool    `json:"up"`
	Version string  `json:"version"`
	Took    float64 `json:"took"`
	Bytes   int64   `json:"bytes"`
	Open    int     `json:"open"`
	InUse   int     `json:"inUse"`
	Most    int     `json:"most"` // 0: no limit
	Waited  int64   `json:"waited"`
}

type redisStore struct {
	Embedded bool     `json:"embedded"`
	Up       bool     `json:"up"`
	Open     int      `json:"open"`
	Idle     int      `json:"idle"`
	Timeouts int      `json:"timeouts"`
	Masters  []master `json:"masters"`
}

type master struct {
	Addr        string  `json:"addr"`
	Version     string  `json:"version"`
	Incarnation string  `json:"incarnation"`
	Up          float64 `json:"up"`
	Used        int64   `json:"used"`
	Most        int64   `json:"most"`
	Eviction    string  `json:"eviction"`
	Clients     int     `json:"clients"`
	Replicas    int     `json:"replicas"`
	Commands    int     `json:"commands"` // per second
	Evicted     int64   `json:"evicted"`
}

// shown is the set of this process's metrics that the page shows.
var shown = map[string]bool{
	"tideline_sockets": true, "tideline_live_subscriptions": true, "tideline_live_events_total": true, "tideline_live_lagged_total": true,
	"tideline_live_resyncs_total": true, "tideline_live_connects_total": true, "tideline_canary_seconds": true,
	"process_resident_memory_bytes": true, "go_goroutines": true,
}

// madeSnapshot is a snapshot as JSON.
type madeSnapshot struct {
	text []byte
	made time.Time
	took time.Duration
}

// latest returns the snapshot as JSON. It makes a new one if the shared one is too old. Its error
// is the error of ctx.
func (p *Page) latest(ctx context.Context) ([]byte, error) {
	holds := func(s madeSnapshot) bool { return time.Since(s.made) < max(p.cfg.Every, rest*s.took) }
	s, err := p.shared.Get(ctx, holds, func(ctx context.Context) (madeSnapshot, error) {
		ctx, cancel := context.WithTimeout(ctx, snapshotFor)
		defer cancel()
		began := time.Now()
		text, err := json.Marshal(p.look(ctx))
		return madeSnapshot{text, time.Now(), time.Since(began)}, err
	})
	return s.text, err
}

// look queries all parts at once. It lists and logs the parts that do not answer.
func (p *Page) look(ctx context.Context) *snapshot {
	now := &snapshot{
		At: time.Now().UTC(), Version: p.cfg.Version, Process: p.cfg.Process,
		Failed: []string{}, Processes: []listedProcess{}, Pools: []pool{}, Kinds: []kind{}, DeadJobs: []listedJob{}, Metrics: map[string]float64{},
	}
	parts := []struct {
		name string
		ask  func(context.Context, *snapshot) error
	}{{"processes", p.processes}, {"queue", p.queue}, {"webhooks", p.webhooks}, {"stores", p.stores}, {"metrics", p.metrics}}
	errs := make([]error, len(parts))
	var asked sync.WaitGroup
	for i, part := range parts {
		asked.Go(func() { errs[i] = part.ask(ctx, now) })
	}
	asked.Go(func() { now.Checks = p.cfg.Ready() })
	asked.Wait()
	for i, err := range errs {
		if err != nil {
			now.Failed = append(now.Failed, parts[i].name)
			p.cfg.Logger.WarnContext(ctx, "the admin page lacks a part", "part", parts[i].name, "error", err)
		}
	}
	return now
}

func (p *Page) processes(ctx context.Context, now *snapshot) error {
	list, err := p.cfg.Fleet.List(ctx)
	for _, one := range list[:min(len(list), maxProcesses)] {
		now.Processes = append(now.Processes, listedProcess{
			one.ID, one.Host, one.Pid, one.Version, one.Roles, one.StartedAt, one.SeenAt, one.Subscriptions, one.Jobs, p.cfg.Fleet.State(one), fleet.HasWorkers(one),
		})
	}
	return err
}

func (p *Page) queue(ctx context.Context, now *snapshot) error {
	stats, err := p.cfg.Queue.Stats(ctx)
	if err != nil {
		return err
	}
	for _, name := range []queue.Pool{queue.Small, queue.Large, queue.Relations} {
		now.Pools = append(now.Pools, pool{name, stats.Pools[name].Depth, seconds(stats.Pools[name].Oldest)})
	}
	now.Dead = stats.Dead
	kinds, err := p.cfg.Queue.StatsByKind(ctx)
	if err != nil {
		return err
	}
	for _, k := range kinds {
		now.Kinds = append(now.Kinds, kind(k))
	}
	dead, err := p.cfg.Queue.List(ctx, queue.ListOptions{Dead: true, Limit: maxDead})
	now.DeadJobs = listed(dead)
	return err
}

func listed(jobs []*ent.Job) []listedJob {
	list := []listedJob{}
	for _, j := range jobs {
		list = append(list, listedJob{
			ID: j.ID, Kind: j.Kind, Pool: j.Pool, Dead: j.Dead,
			Attempts: j.Attempts, Error: j.LastError, Payload: j.Payload, CreatedAt: j.CreatedAt,
		})
	}
	return list
}

func (p *Page) webhooks(ctx context.Context, now *snapshot) error {
	stats, err := p.cfg.Webhooks(ctx)
	if err == nil {
		now.Webhooks = &webhooks{stats.Pending, stats.Dead, seconds(stats.Oldest)}
	}
	return err
}

func (p *Page) stores(ctx context.Context, now *snapshot) error {
	s, err := p.cfg.Stores.State(ctx)
	now.Stores = stores{
		SQL: sqlStore{
			p.cfg.Stores.Dialect, s.SQL.Up, s.SQL.Version, seconds(s.SQL.Took), s.SQL.Bytes,
			s.SQL.Pool.OpenConnections, s.SQL.Pool.InUse, s.SQL.Pool.MaxOpenConnections, s.SQL.Pool.WaitCount,
		},
		Redis: redisStore{
			Embedded: p.cfg.Stores.Embedded, Up: s.RedisUp, Open: s.RedisPool.Open, Idle: s.RedisPool.Idle,
			Timeouts: s.RedisPool.Timeouts, Masters: masters(s.Masters),
		},
	}
	return err
}

func masters(list []storage.MasterState) []master {
	all := []master{}
	for _, m := range list {
		all = append(all, master{
			Addr: m.Addr, Version: m.Version, Incarnation: m.Incarnation, Up: seconds(m.Up),
			Used: m.Used, Most: m.Most, Eviction: m.Eviction, Clients: m.Clients,
			Replicas: m.Replicas, Commands: m.CommandsPerSecond, Evicted: m.EvictedKeys,
		})
	}
	return all
}

// metrics collects the metrics in shown. The values of labels follow the name, each after a dot.
func (p *Page) metrics(_ context.Context, now *snapshot) error {
	families, err := p.cfg.Metrics.Gather()
	for _, family := range families {
		if !shown[family.GetName()] {
			continue
		}
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += "." + label.GetValue()
			}
			value := m.GetGauge().GetValue()
			if m.GetCounter() != nil {
				value = m.GetCounter().GetValue()
			}
			now.Metrics[name] = value
		}
	}
	return err
}

func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e4) / 1e4 }

// snapshot answers with one snapshot.
func (p *Page) snapshot(r *http.Request, _ session.Viewer) (any, error) {
	text, err := p.latest(r.Context())
	return json.RawMessage(text), err
}

// stream sends server-sent events, one snapshot each, until the client leaves, is no longer an admin, or
// its session cannot be checked.
func (p *Page) stream(w http.ResponseWriter, r *http.Request) {
	if _, err := p.admin(r); err != nil {
		p.answer(w, r, nil, err)
		return
	}
	select {
	case p.seats <- struct{}{}:
		defer func() { <-p.seats }()
	default:
		w.Header().Set("Retry-After", "5")
		p.answer(w, r, nil, &failure{http.StatusServiceUnavailable, "RATE_LIMITED", "Too many look at this page at once."})
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // a writer without this method keeps the server's deadline
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	tick := time.NewTicker(p.cfg.Every)
	defer tick.Stop()
	for {
		if _, err := p.admin(r); err != nil {
			if refusal.CodeOf(err) != "" {
				_ = send(w, control, "event: end\ndata:\n\n", nil)
			}
			return
		}
		text, err := p.latest(r.Context())
		if err != nil {
			return
		}
		if err := send(w, control, "event: snapshot\ndata: ", text); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-p.ended:
			return
		case <-tick.C:
		}
	}
}

func send(w http.ResponseWriter, control *http.ResponseController, head string, data []byte) error {
	if err := control.SetWriteDeadline(time.Now().Add(writeFor)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	text := []byte(head)
	if data != nil {
		text = append(append(text, data...), "\n\n"...)
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	return control.Flush()
}
