package meter

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"entgo.io/ent/dialect"
	"github.com/redis/go-redis/v9"

	"tideline/internal/redisclient"
	"tideline/storage"
)

// spent returns the processor time that the stores have used since they started, in steps of Tick. For a Redis
// Cluster, it is the sum over all masters. A time is nil if it is unknown: the store runs inside a process,
// PostgreSQL runs on another machine, or the operating system has no /proc.
//
// Cost: one round trip to each store, and one file read for each process of the machine.
func spent(ctx context.Context, s *storage.Stores) (sql, rdb *time.Duration, err error) {
	if s.Dialect == dialect.Postgres {
		sql = postgresTime(ctx, s)
	}
	if s.Redis == nil || s.Embedded {
		return sql, nil, nil
	}
	var total time.Duration
	err = s.EachMaster(ctx, func(_ redisclient.Client, _ string, info map[string]string) {
		for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
			seconds, _ := strconv.ParseFloat(info[field], 64) // Redis formats it correctly
			total += time.Duration(seconds * float64(time.Second))
		}
	}, "cpu")
	return sql, &total, err
}

// commandTime returns how long Redis has executed a command, such as get, since it started. It is
// wall-clock time, so a busy machine lengthens it. It is zero without a shared Redis.
func commandTime(ctx context.Context, s *storage.Stores, name string) (took time.Duration, err error) {
	if s.Redis == nil || s.Embedded {
		return 0, nil
	}
	stat := regexp.MustCompile(`,usec=(\d+),`)
	err = s.EachMaster(ctx, func(_ redisclient.Client, _ string, info map[string]string) {
		if found := stat.FindStringSubmatch(info["cmdstat_"+name]); found != nil {
			micros, _ := strconv.Atoi(found[1])
			took += time.Duration(micros) * time.Microsecond
		}
	}, "commandstats")
	return took, err
}

// table describes a SQL table. bytes is its size on disk, including indexes.
type table struct {
	name        string
	rows, bytes int64
}

// tablesOf returns all tables.
//
// Cost: it counts all rows; on SQLite it reads the whole file.
func tablesOf(ctx context.Context, s *storage.Stores) (tables []table, err error) {
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
		var t table
		if err := rows.Scan(&t.name, &t.bytes); err != nil {
			return nil, fmt.Errorf("list tables: %w", err)
		}
		tables = append(tables, t)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	for i := range tables {
		count := fmt.Sprintf(`SELECT count(*) FROM %q`, tables[i].name) // the name comes from the catalogue
		if err := s.SQL.QueryRowContext(ctx, count).Scan(&tables[i].rows); err != nil {
			return nil, fmt.Errorf("count the rows of %s: %w", tables[i].name, err)
		}
	}
	return tables, nil
}

// keySum sums up the keys of one kind. entries counts the members of their sets and the fields of
// their hashes.
type keySum struct{ count, entries, bytes int64 }

// keysOf samples at most most keys of each Redis master and sums them up by kindOf. It skips keys
// whose kind is "". The result is empty without a shared Redis.
//
// Cost: O(most) commands in pipelines of 1,000, and MEMORY USAGE of each key over all its entries.
func keysOf(ctx context.Context, s *storage.Stores, most int, kindOf func(key string) string) (kinds map[string]keySum, err error) {
	kinds = map[string]keySum{}
	if s.Redis == nil || s.Embedded {
		return kinds, nil
	}
	var failed error
	err = s.EachMaster(ctx, func(master redisclient.Client, _ string, _ map[string]string) {
		if failed == nil {
			failed = sample(ctx, master, most, kindOf, kinds)
		}
	}, "server")
	if err == nil {
		err = failed
	}
	return kinds, err
}

func sample(ctx context.Context, master redisclient.Client, most int, kindOf func(string) string, kinds map[string]keySum) error {
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
			k.count, k.bytes, k.entries = k.count+1, k.bytes+bytes[i].Val(), k.entries+sets[i].Val()+hashes[i].Val()
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
func postgresTime(ctx context.Context, s *storage.Stores) *time.Duration {
	var backend int
	if s.SQL.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&backend) != nil {
		return nil
	}
	// If PostgreSQL runs on another machine, its process id may belong to an unrelated program
	// here.
	own, err := ReadProcess(backend)
	if err != nil || own.Name != "postgres" {
		return nil
	}
	postmaster, err := ReadProcess(own.Parent)
	if err != nil || postmaster.Name != "postgres" {
		return nil
	}
	total, err := WithChildren(own.Parent)
	if err != nil {
		return nil
	}
	return &total
}
