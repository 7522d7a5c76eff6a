package soak

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/e2e/worldtest"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// patience bounds the wait until the figures have returned to their values before the load.
// Go collects garbage at least every two minutes, and idle connections to PostgreSQL are
// closed after five minutes.
const patience = 8 * time.Minute

func TestSoak(t *testing.T) {
	stores := storagetest.Real(t)
	settings := []string{
		"TIDELINE_DATABASE_URL=" + storagetest.Config(stores).DatabaseURL, "TIDELINE_REDIS_URL=" + storagetest.Config(stores).RedisURL,
		"TIDELINE_LOG_FORMAT=json", "TIDELINE_LOG_LEVEL=warn", "TIDELINE_RATE_LIMIT=off", "TIDELINE_REQUEST_TIMEOUT=1m",
	}
	server := worldtest.NewProcess(t, binary, settings, "--addr", "server")
	worker := worldtest.NewProcess(t, binary, settings, "--worker-addr", "worker")
	w := newTown(t, stores, server, *people)
	m := &meter{stores: stores, processes: map[string]*worldtest.Process{"server": server, "worker": worker}}

	// Warm up, so that pools, feeds and journals are full before the first measurement.
	require.NoError(t, w.live(t, max(*length/4, 10*time.Second)))
	before, err := m.resting(t.Context(), nil)
	require.NoError(t, err)
	w.actions.Store(0)

	peak, stop := m.watch(t.Context())
	require.NoError(t, w.live(t, *length))
	stop()
	after, err := m.resting(t.Context(), before)
	t.Logf("%d actions in %v\n%s", w.actions.Load(), *length, table(before, peak, after))
	require.NoError(t, err)
}

// meter measures the resources that a load may leave behind.
type meter struct {
	stores    *storage.Stores
	processes map[string]*worldtest.Process
}

// figures are measured values by name.
type figures map[string]float64

// tolerance is the allowed increase of a figure: a share of its first value plus a number.
type tolerance struct{ share, number float64 }

// toleranceOf returns the allowed increase of a figure. For example, pools open and close
// connections at any time.
func toleranceOf(name string) tolerance {
	_, kind, _ := strings.Cut(name, " ")
	switch kind {
	case "goroutines", "open files":
		return tolerance{0.1, 60}
	case "heap MB":
		return tolerance{0.3, 8}
	case "resident MB":
		return tolerance{0.4, 48}
	case "memory MB":
		return tolerance{0.2, 2}
	case "keys":
		return tolerance{0.1, 10}
	case "oldest job s":
		return tolerance{0, 5}
	}
	return tolerance{0, 3} // rows
}

// judged reports whether an increase of the figure fails the test. After a short load, the
// memory of the processes does not count, because the garbage collector needs minutes to
// return it.
func judged(name string) bool {
	if strings.HasSuffix(name, " soon") {
		return false
	}
	return *length > quick || !strings.HasSuffix(name, " heap MB") && !strings.HasSuffix(name, " resident MB")
}

func (m *meter) read(ctx context.Context) (figures, error) {
	f := figures{}
	for name, p := range m.processes {
		metrics, err := p.Metrics(ctx)
		if err != nil {
			return nil, err
		}
		f[name+" goroutines"] = metrics["go_goroutines"]
		f[name+" open files"] = metrics["process_open_fds"]
		f[name+" resident MB"] = metrics["process_resident_memory_bytes"] / (1 << 20)
		// The next collection starts when the heap has doubled since the last one, so half of
		// its threshold is the live heap.
		f[name+" heap MB"] = metrics["go_memstats_next_gc_bytes"] / 2 / (1 << 20)
	}
	if err := m.countKeys(ctx, f); err != nil {
		return nil, err
	}
	info, err := m.stores.Redis.(*redis.Client).InfoMap(ctx, "memory").Result()
	if err != nil {
		return nil, err
	}
	var used float64
	if _, err := fmt.Sscan(info["Memory"]["used_memory_dataset"], &used); err != nil {
		return nil, err
	}
	f["redis memory MB"] = used / (1 << 20)
	if err := m.countRows(ctx, f); err != nil {
		return nil, err
	}
	var oldest float64
	err = m.stores.SQL.QueryRowContext(ctx, `SELECT coalesce(max(extract(epoch FROM now() - created_at)), 0) FROM jobs WHERE kind NOT LIKE 'canary%'`).Scan(&oldest)
	f["queue oldest job s"] = oldest
	return f, err
}

// soon separates short-lived keys, which describe recent activity, from others. The number of
// short-lived keys depends on the recent load, so it is not judged.
const soon = 2 * time.Hour

// countKeys counts the keys that expire within soon, and the other keys.
func (m *meter) countKeys(ctx context.Context, f figures) error {
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		keys, next, err := m.stores.Redis.Scan(ctx, cursor, "*", 1000).Result()
		if err != nil {
			return err
		}
		lives := make([]*redis.DurationCmd, len(keys))
		if _, err := m.stores.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, key := range keys {
				lives[i] = p.TTL(ctx, key)
			}
			return nil
		}); err != nil {
			return err
		}
		for _, life := range lives {
			if life.Val() > 0 && life.Val() < soon {
				f["redis keys that end soon"]++
			} else {
				f["redis keys"]++
			}
		}
		cursor = next
	}
	return nil
}

// countRows counts the rows of every table.
func (m *meter) countRows(ctx context.Context, f figures) error {
	rows, err := m.stores.SQL.QueryContext(ctx, `SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'`)
	if err != nil {
		return err
	}
	defer rows.Close()
	var tables []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		tables = append(tables, name)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, name := range tables {
		var n int
		if err := m.stores.SQL.QueryRowContext(ctx, `SELECT count(*) FROM `+name).Scan(&n); err != nil {
			return err
		}
		f["rows of "+name] = float64(n)
	}
	return nil
}

// watch measures once per second until stop is called. After that, peak contains the highest
// value of each figure.
func (m *meter) watch(ctx context.Context) (peak figures, stop func()) {
	peak = figures{}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			if now, err := m.read(ctx); err == nil { // a failed measurement is skipped
				for name, value := range now {
					peak[name] = max(peak[name], value)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	return peak, func() { cancel(); watching.Wait() }
}

// resting waits until no job is left. If before is not nil, it also waits until the figures
// are back at their values before, within their tolerances. It returns the last figures.
func (m *meter) resting(ctx context.Context, before figures) (now figures, err error) {
	http.DefaultClient.CloseIdleConnections()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Second) {
		if now, err = m.read(ctx); err == nil {
			if now["rows of jobs"] > 0 {
				err = fmt.Errorf("%v jobs are left", now["rows of jobs"])
			} else if above := grown(before, now); len(above) > 0 {
				err = fmt.Errorf("did not come back: %s", strings.Join(above, ", "))
			}
		}
		if err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return now, err
		}
	}
}

// grown returns the names of the figures that exceed their tolerance.
func grown(before, now figures) (names []string) {
	for name, was := range before {
		if t := toleranceOf(name); judged(name) && now[name] > was*(1+t.share)+t.number {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func table(before, peak, after figures) string {
	var b strings.Builder
	out := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "what\tbefore\tpeak\tafter\tverdict")
	above := grown(before, after)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		verdict := "came back"
		if slices.Contains(above, name) {
			verdict = "GREW"
		} else if !judged(name) {
			verdict = "not judged"
		}
		fmt.Fprintf(out, "%s\t%.1f\t%.1f\t%.1f\t%s\n", name, before[name], peak[name], after[name], verdict)
	}
	_ = out.Flush()
	return b.String()
}
