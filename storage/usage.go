package storage

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"entgo.io/ent/dialect"
	"github.com/redis/go-redis/v9"
)

// Spent is the processor time that the stores have used since they started, in steps of 10 ms. A
// field is nil if the time is unknown: the store runs inside a process, PostgreSQL runs on another
// machine, or the operating system has no /proc.
type Spent struct{ SQL, Redis *time.Duration }

// Spent returns the processor time of the stores. For a Redis Cluster, it is the sum over all
// masters.
//
// Cost: one round trip to each store, and one file read for each process of the machine.
func (s *Stores) Spent(ctx context.Context) (spent Spent, err error) {
	if s.Dialect == dialect.Postgres {
		spent.SQL = s.postgresTime(ctx)
	}
	if s.Redis == nil || s.Embedded {
		return spent, nil
	}
	var total time.Duration
	err = s.eachMaster(ctx, func(info map[string]string, _ *redis.Client) {
		for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
			seconds, _ := strconv.ParseFloat(info[field], 64) // Redis formats it correctly
			total += time.Duration(seconds * float64(time.Second))
		}
	}, "cpu")
	spent.Redis = &total
	return spent, err
}

// CommandTime returns how long Redis has executed a command, such as get, since it started. It is
// wall-clock time, so a busy machine lengthens it. It is zero without a shared Redis.
func (s *Stores) CommandTime(ctx context.Context, name string) (took time.Duration, err error) {
	if s.Redis == nil || s.Embedded {
		return 0, nil
	}
	stat := regexp.MustCompile(`,usec=(\d+),`)
	err = s.eachMaster(ctx, func(info map[string]string, _ *redis.Client) {
		if found := stat.FindStringSubmatch(info["cmdstat_"+name]); found != nil {
			micros, _ := strconv.Atoi(found[1])
			took += time.Duration(micros) * time.Microsecond
		}
	}, "commandstats")
	return took, err
}

// eachMaster calls fn with the given INFO sections of each master, one call at a time.
func (s *Stores) eachMaster(ctx context.Context, fn func(info map[string]string, master *redis.Client), sections ...string) error {
	one := func(ctx context.Context, master *redis.Client) error {
		text, err := master.Info(ctx, sections...).Result()
		if err != nil {
			return fmt.Errorf("ask Redis for its %s: %w", strings.Join(sections, " and "), err)
		}
		info := map[string]string{}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			info[name] = value
		}
		fn(info, master)
		return nil
	}
	switch rdb := s.Redis.(type) {
	case *redis.ClusterClient:
		var turn sync.Mutex
		return rdb.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			turn.Lock()
			defer turn.Unlock()
			return one(ctx, master)
		})
	case *redis.Client:
		return one(ctx, rdb)
	}
	return nil
}

// Table describes a SQL table. Bytes is its size on disk, including indexes.
type Table struct {
	Name  string
	Rows  int64
	Bytes int64
}

// Tables returns all tables.
//
// Cost: it counts all rows; on SQLite it reads the whole file.
func (s *Stores) Tables(ctx context.Context) (tables []Table, err error) {
	query := `SELECT c.relname, pg_total_relation_size(c.oid) FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname = current_schema() ORDER BY 1`
	if s.Dialect == dialect.SQLite {
		query = `SELECT m.tbl_name, sum(d.pgsize) FROM dbstat d JOIN sqlite_schema m ON m.name = d.name
			WHERE d.aggregate = TRUE GROUP BY 1 ORDER BY 1`
	}
	rows, err := s.SQL.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var t Table
		if err := rows.Scan(&t.Name, &t.Bytes); err != nil {
			return nil, fmt.Errorf("list tables: %w", err)
		}
		tables = append(tables, t)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	for i := range tables {
		count := fmt.Sprintf(`SELECT count(*) FROM %q`, tables[i].Name) // the name comes from the catalogue
		if err := s.SQL.QueryRowContext(ctx, count).Scan(&tables[i].Rows); err != nil {
			return nil, fmt.Errorf("count the rows of %s: %w", tables[i].Name, err)
		}
	}
	return tables, nil
}

// Keys sums up the keys of one kind. Entries counts the members of their sets and the fields of
// their hashes.
type Keys struct{ Count, Entries, Bytes int64 }

// Keys samples at most most keys of each Redis master and sums them up by kindOf. It skips keys
// whose kind is "". The result is empty without a shared Redis.
//
// Cost: O(most) commands in pipelines of 1,000, and MEMORY USAGE of each key over all its entries.
func (s *Stores) Keys(ctx context.Context, most int, kindOf func(key string) string) (kinds map[string]Keys, err error) {
	kinds = map[string]Keys{}
	if s.Redis == nil || s.Embedded {
		return kinds, nil
	}
	var failed error
	err = s.eachMaster(ctx, func(_ map[string]string, master *redis.Client) {
		if failed == nil {
			failed = sample(ctx, master, most, kindOf, kinds)
		}
	}, "server")
	if err == nil {
		err = failed
	}
	return kinds, err
}

func sample(ctx context.Context, master *redis.Client, most int, kindOf func(string) string, kinds map[string]Keys) error {
	for cursor, seen := uint64(0), 0; seen < most; {
		keys, next, err := master.Scan(ctx, cursor, "", 1000).Result()
		if err != nil {
			return fmt.Errorf("scan the keys of Redis: %w", err)
		}
		pipe := master.Pipeline()
		var bytes, sets, hashes []*redis.IntCmd
		var of []string
		for _, key := range keys {
			if kind := kindOf(key); kind != "" {
				of = append(of, kind)
				bytes = append(bytes, pipe.MemoryUsage(ctx, key, 0))
				sets, hashes = append(sets, pipe.ZCard(ctx, key)), append(hashes, pipe.HLen(ctx, key))
			}
		}
		if len(of) > 0 {
			_, _ = pipe.Exec(ctx) // for each key, ZCARD or HLEN fails
		}
		for i, kind := range of {
			if bytes[i].Err() != nil {
				continue // the key expired meanwhile
			}
			k := kinds[kind]
			k.Count, k.Bytes, k.Entries = k.Count+1, k.Bytes+bytes[i].Val(), k.Entries+sets[i].Val()+hashes[i].Val()
			kinds[kind] = k
		}
		seen += len(keys)
		if cursor = next; cursor == 0 {
			return nil
		}
	}
	return nil
}

// postgresTime returns the processor time of all PostgreSQL processes, including those that have
// ended. It returns nil unless PostgreSQL runs on this machine.
func (s *Stores) postgresTime(ctx context.Context) *time.Duration {
	var backend int
	if s.SQL.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&backend) != nil {
		return nil
	}
	// If PostgreSQL runs on another machine, its process id may belong to an unrelated program
	// here.
	own, err := statOf(backend)
	if err != nil || own.name != "postgres" {
		return nil
	}
	postmaster, err := statOf(own.parent)
	if err != nil || postmaster.name != "postgres" {
		return nil
	}
	total := postmaster.own + postmaster.gone
	all, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, dir := range all {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if child, err := statOf(pid); err == nil && child.parent == own.parent { // otherwise it ended meanwhile
			total += child.own
		}
	}
	return &total
}

// procStat is the information of /proc about a process: own is its processor time, and gone the
// time of its children that have ended.
type procStat struct {
	name      string
	parent    int
	own, gone time.Duration
}

func statOf(pid int) (p procStat, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, err
	}
	from, to := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	fields := bytes.Fields(text[to+1:])
	if from < 0 || to < from || len(fields) < 15 {
		return p, fmt.Errorf("process %d: /proc has another form here", pid)
	}
	var numbers [15]int64
	for i := 1; i < len(numbers); i++ {
		if numbers[i], err = strconv.ParseInt(string(fields[i]), 10, 64); err != nil {
			return p, err
		}
	}
	const tick = 10 * time.Millisecond
	return procStat{
		string(text[from+1 : to]), int(numbers[1]),
		time.Duration(numbers[11]+numbers[12]) * tick, time.Duration(numbers[13]+numbers[14]) * tick,
	}, nil
}
