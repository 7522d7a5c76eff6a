package storage

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"entgo.io/ent/dialect"

	"tideline/internal/redisclient"
)

// State describes the stores at one moment, as far as they report it to this process.
type State struct {
	SQL SQLState
	// RedisUp reports whether every master answered.
	RedisUp   bool
	RedisPool RedisPool
	// Masters are the Redis masters that answered, sorted by address. It is empty for the
	// in-process Redis.
	Masters []MasterState
}

// SQLState describes the SQL database and the connection pool of this process.
type SQLState struct {
	Up      bool
	Took    time.Duration // duration of the round trip
	Version string
	Bytes   int64 // size of the database; on SQLite without the write-ahead log
	Pool    sql.DBStats
	// Connections is the number of connections that PostgreSQL has from all clients.
	// MostConnections is its limit for roles that are not superusers. Both are zero on SQLite.
	Connections, MostConnections int
}

// RedisPool describes this process's pool of Redis connections.
type RedisPool struct{ Open, Idle, Timeouts int }

// MasterState describes a Redis master. A value that the master does not report is zero.
type MasterState struct {
	Addr, Version string
	// Incarnation names the data. It changes at every restart and every promotion.
	Incarnation       string
	Up                time.Duration // time since its start
	Used, Most        int64         // bytes of memory; Most is 0 without a limit
	Eviction          string
	Clients, Replicas int
	CommandsPerSecond int
	EvictedKeys       int64
}

// State asks SQL and Redis at the same time. A store that does not answer before ctx ends is
// reported as not up. The error is for the log.
//
// Cost: two SQL queries, one of them of the catalogue, and one round trip to each master.
func (s *Stores) State(ctx context.Context) (now State, err error) {
	var asked sync.WaitGroup
	var sqlErr, redisErr error
	asked.Go(func() { now.SQL, sqlErr = s.sqlState(ctx) })
	asked.Go(func() {
		if s.Embedded {
			redisErr = s.CheckRedis(ctx)
		} else {
			redisErr = s.EachMaster(ctx, func(_ redisclient.Client, addr string, info map[string]string) {
				now.Masters = append(now.Masters, masterState(info, addr))
			}, "default")
		}
		now.RedisUp = redisErr == nil
	})
	asked.Wait()
	slices.SortFunc(now.Masters, func(a, b MasterState) int { return strings.Compare(a.Addr, b.Addr) })
	pool := s.Redis.PoolStats()
	now.RedisPool = RedisPool{Open: int(pool.TotalConns), Idle: int(pool.IdleConns), Timeouts: int(pool.Timeouts)}
	return now, errors.Join(sqlErr, redisErr)
}

func (s *Stores) sqlState(ctx context.Context) (SQLState, error) {
	now := SQLState{Pool: s.SQL.Stats()}
	version, size := "SELECT sqlite_version(), 0, 0", "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
	if s.Dialect == dialect.Postgres {
		version = `SELECT current_setting('server_version'), (SELECT sum(numbackends) FROM pg_stat_database WHERE datid > 0),
			current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int`
		size = "SELECT pg_database_size(current_database())"
	}
	asked := time.Now()
	if err := s.SQL.QueryRowContext(ctx, version).Scan(&now.Version, &now.Connections, &now.MostConnections); err != nil {
		return now, err
	}
	now.Up, now.Took = true, time.Since(asked)
	return now, s.SQL.QueryRowContext(ctx, size).Scan(&now.Bytes)
}

func masterState(info map[string]string, addr string) MasterState {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(info[name], 10, 64) // 0 if not reported
		return n
	}
	return MasterState{
		Addr: addr, Version: info["redis_version"], Incarnation: info["master_replid"],
		Up:   time.Duration(number("uptime_in_seconds")) * time.Second,
		Used: number("used_memory"), Most: number("maxmemory"), Eviction: info["maxmemory_policy"],
		Clients: int(number("connected_clients")), Replicas: int(number("connected_slaves")),
		CommandsPerSecond: int(number("instantaneous_ops_per_sec")),
		EvictedKeys:       number("evicted_keys"),
	}
}
