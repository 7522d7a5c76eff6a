// Package meter reads the resources that the processes of a Tideline have used: from the metrics of the
// server and its workers, and directly from the stores.
//
// A value that it cannot read is unknown and never 0; see capacity.Figure.
package meter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tideline/bench/capacity"
	"tideline/storage"
	"tideline/timeline"
)

const (
	sampled = 200_000 // keys sampled on each Redis master
	fewRows = 1000    // fewest rows of a table for a good estimate: with fewer, half-empty pages make each row look too large
	patient = 30 * time.Second
	// Tick is the resolution of processor times.
	Tick = 10 * time.Millisecond
)

// Meter reads the resources that processes have used.
type Meter struct {
	HTTP    *http.Client
	Server  string          // URL of the server's metrics
	Workers []string        // URLs of the metrics of workers in separate processes
	Stores  *storage.Stores // nil: unknown
	// Idle is what all processes use when nothing happens, in µs per second. Meter.Each subtracts it.
	Idle capacity.Work
}

// Reading is the resources used up to a moment: processor time in µs, and the server's memory.
type Reading struct {
	capacity.Work
	Resident capacity.Figure
	At       time.Time
}

// LookUpTime returns the time that Redis has spent looking up where users are connected; 0 if it is unknown.
func (m *Meter) LookUpTime(ctx context.Context) time.Duration {
	if m.Stores == nil {
		return 0
	}
	took, _ := commandTime(ctx, m.Stores, "smismember") // an error means that it is unknown
	return took
}

// Quiet waits until all processes together are nearly idle, for at most 30 seconds,
// since they may have other users.
func (m *Meter) Quiet(ctx context.Context) error {
	const hardly = 0.04
	for end := time.Now().Add(patient); time.Now().Before(end); {
		before, err := m.Read(ctx)
		if err != nil {
			return err
		}
		if err := Pause(ctx, time.Second); err != nil {
			return err
		}
		after, err := m.Read(ctx)
		if err != nil {
			return err
		}
		used := 0.0
		for _, process := range [][2]capacity.Figure{
			{before.Server, after.Server}, {before.Worker, after.Worker}, {before.SQL, after.SQL}, {before.Redis, after.Redis},
		} {
			if process[0] != nil && process[1] != nil {
				used += *process[1] - *process[0]
			}
		}
		if used < hardly*float64(after.At.Sub(before.At).Microseconds()) {
			return nil
		}
	}
	return nil
}

// Rested pauses, then reads.
func (m *Meter) Rested(ctx context.Context, length time.Duration) (Reading, error) {
	if err := Pause(ctx, length); err != nil {
		return Reading{}, err
	}
	return m.Read(ctx)
}

// Each returns the resources used between two readings, without Idle, divided by n.
func (m *Meter) Each(before, after Reading, n int) capacity.Work {
	seconds := after.At.Sub(before.At).Seconds()
	used := capacity.Each(func(v []float64) float64 { return v[1] - v[0] }, before.Work, after.Work)
	idle := m.Idle
	if idle == (capacity.Work{}) {
		idle = capacity.Each(func([]float64) float64 { return 0 }, used)
	}
	return capacity.Each(func(v []float64) float64 { return (v[0] - seconds*v[1]) / float64(n) }, used, idle)
}

// Read reads what all processes have used.
func (m *Meter) Read(ctx context.Context) (s Reading, err error) {
	server, err := m.metrics(ctx, m.Server)
	if err != nil {
		return s, err
	}
	if seconds, found := server["process_cpu_seconds_total"]; found {
		s.Server = new(seconds * 1e6)
	}
	if resident, found := server["process_resident_memory_bytes"]; found {
		s.Resident = new(resident)
	}
	for _, address := range m.Workers {
		worker, err := m.metrics(ctx, address)
		if err != nil {
			return s, err
		}
		seconds, found := worker["process_cpu_seconds_total"]
		if !found {
			return s, fmt.Errorf("--worker-metrics: %s does not tell its processor time", address)
		}
		if s.Worker == nil {
			s.Worker = new(0.0)
		}
		*s.Worker += seconds * 1e6
	}
	if m.Stores != nil {
		sql, rdb, err := spent(ctx, m.Stores)
		if err != nil {
			return s, err
		}
		micros := func(took *time.Duration) capacity.Figure {
			if took == nil {
				return nil
			}
			return new(float64(took.Microseconds()))
		}
		s.SQL, s.Redis = micros(sql), micros(rdb)
	}
	s.At = time.Now()
	return s, nil
}

// metrics reads the metrics without labels.
func (m *Meter) metrics(ctx context.Context, address string) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := m.HTTP.Do(request)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read metrics: %s answers %s; --model needs them", address, response.Status)
	}
	values := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil && !strings.ContainsAny(name, "#{") {
			values[name] = v
		}
	}
	return values, nil
}

// Bytes sets the sizes of rows and keys in c. It returns the tables that have too
// few rows for a good estimate.
func (m *Meter) Bytes(ctx context.Context, c *capacity.Constants) (few []string, err error) {
	if m.Stores == nil {
		return nil, nil
	}
	tables, err := tablesOf(ctx, m.Stores)
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		row := map[string]*capacity.Figure{
			"users": &c.UserRow, "sessions": &c.SessionRow, "read_markers": &c.MarkerRow,
			"follows": &c.FollowRow, "posts": &c.PostRow, "deliveries": &c.ReceiptRow,
		}[t.name]
		if row == nil || t.rows == 0 {
			continue
		}
		*row = new(float64(t.bytes) / float64(t.rows))
		if t.rows < fewRows {
			few = append(few, fmt.Sprintf("%s (%d)", t.name, t.rows))
		}
	}
	kinds, err := keysOf(ctx, m.Stores, sampled, timeline.KindOf)
	if err != nil {
		return nil, err
	}
	per := func(kind string, entries bool) capacity.Figure {
		k := kinds[kind]
		n := k.count
		if entries {
			n = k.entries
		}
		if n == 0 {
			return nil
		}
		return new(float64(k.bytes) / float64(n))
	}
	c.InboxEntry, c.InboxRest = per(timeline.KindInbox, true), per(timeline.KindJournal, false)
	c.OutboxEntry, c.OutboxRest = per(timeline.KindOutbox, true), per(timeline.KindCoverage, false)
	c.Fences, c.Active, c.Latest = per(timeline.KindFences, false), per(timeline.KindActive, true), per(timeline.KindLatest, true)
	if k := kinds[timeline.KindInbox]; k.count > 0 {
		c.InboxEntries = new(math.Round(float64(k.entries) / float64(k.count)))
	}
	return few, nil
}

// SameStores returns an error unless the stores have this user. Stores of another server
// would say nothing about this one.
func (m *Meter) SameStores(ctx context.Context, handle string) error {
	if m.Stores == nil {
		return nil
	}
	var n int
	err := m.Stores.SQL.QueryRowContext(ctx, fmt.Sprintf("SELECT count(*) FROM users WHERE handle = '%s'", handle)).Scan(&n)
	if err != nil {
		return err
	}
	if n == 0 {
		return errors.New("the stores that --data-dir, --database-url and --redis-url name do not belong to the server at --url")
	}
	return nil
}

// Pause waits for the given time, or returns the error of ctx.
func Pause(ctx context.Context, length time.Duration) error {
	select {
	case <-time.After(length):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
