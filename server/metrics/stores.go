package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"tideline/storage"
)

// stores collects the last known state of SQL and Redis.
type stores struct {
	mu  sync.Mutex
	now storage.State
}

// set records an answer. It keeps the last known values of a store that did not answer, except the connection
// pools, which belong to this process.
func (s *stores) set(now storage.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !now.SQL.Up {
		pool := now.SQL.Pool
		now.SQL = s.now.SQL
		now.SQL.Pool = pool
	}
	if !now.RedisUp {
		now.Masters = s.now.Masters
	}
	s.now = now
}

// desc returns the description of a metric of the stores.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	sqlPool       = desc("tideline_sql_connections", "Connections of this process to SQL, in use or idle.", "state")
	sqlPoolMost   = desc("tideline_sql_connections_max", "How many it opens at most; 0 without a bound.")
	sqlWaits      = desc("tideline_sql_waits_total", "Times that a statement waited for one of them.")
	sqlWaited     = desc("tideline_sql_wait_seconds_total", "How long they waited together.")
	sqlServer     = desc("tideline_sql_server_connections", "Connections that PostgreSQL has, of everybody.")
	sqlServerMost = desc("tideline_sql_server_connections_max", "How many PostgreSQL takes, without those that it keeps for superusers.")
	sqlBytes      = desc("tideline_sql_bytes", "Size of the database.")
	redisPool     = desc("tideline_redis_connections", "Connections of this process to Redis, in use or idle; those for pub/sub do not count.", "state")
	redisTimeouts = desc("tideline_redis_timeouts_total", "Times that no connection to Redis was free in time.")
	redisInfo     = desc("tideline_redis_info", "Always 1; the labels say what a master is. Its incarnation is another after a restart or a promotion.", "master", "version", "incarnation")
	redisUsed     = desc("tideline_redis_memory_bytes", "Memory that a master uses.", "master")
	redisMost     = desc("tideline_redis_memory_max_bytes", "How much it may use; 0 without a bound.", "master")
	redisEvicted  = desc("tideline_redis_evicted_keys_total", "Keys that a master dropped for want of memory.", "master")
	redisClients  = desc("tideline_redis_clients", "Connections that a master has, of everybody.", "master")
)

// Describe implements [prometheus.Collector].
func (s *stores) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		sqlPool, sqlPoolMost, sqlWaits, sqlWaited, sqlServer, sqlServerMost, sqlBytes,
		redisPool, redisTimeouts, redisInfo, redisUsed, redisMost, redisEvicted, redisClients,
	} {
		to <- d
	}
}

// Collect implements [prometheus.Collector]. It omits metrics that do not exist, such as the masters
// of a Redis inside the process.
func (s *stores) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	now := s.now
	s.mu.Unlock()
	gauge := func(d *prometheus.Desc, value int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	counter := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
	}
	pool := now.SQL.Pool
	gauge(sqlPool, int64(pool.InUse), "in_use")
	gauge(sqlPool, int64(pool.Idle), "idle")
	gauge(sqlPoolMost, int64(pool.MaxOpenConnections))
	counter(sqlWaits, float64(pool.WaitCount))
	counter(sqlWaited, pool.WaitDuration.Seconds())
	if now.SQL.Up {
		gauge(sqlBytes, now.SQL.Bytes)
	}
	if now.SQL.MostConnections > 0 {
		gauge(sqlServer, int64(now.SQL.Connections))
		gauge(sqlServerMost, int64(now.SQL.MostConnections))
	}
	if len(now.Masters) == 0 {
		return
	}
	gauge(redisPool, int64(now.RedisPool.Open-now.RedisPool.Idle), "in_use")
	gauge(redisPool, int64(now.RedisPool.Idle), "idle")
	counter(redisTimeouts, float64(now.RedisPool.Timeouts))
	for _, m := range now.Masters {
		gauge(redisInfo, 1, m.Addr, m.Version, m.Incarnation)
		gauge(redisUsed, m.Used, m.Addr)
		gauge(redisMost, m.Most, m.Addr)
		counter(redisEvicted, float64(m.EvictedKeys), m.Addr)
		gauge(redisClients, int64(m.Clients), m.Addr)
	}
}
