package storage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"entgo.io/ent/dialect"
	"github.com/redis/go-redis/v9"
)

// Survey is how the stores are set up, as far as that can make data slow, wrong or
// lost.
type Survey struct {
	// SQLAhead is how far the clock of PostgreSQL is ahead of this process's, at the
	// least: what the answer took is no difference. Zero on SQLite.
	SQLAhead time.Duration
	// Forgetful are the settings of PostgreSQL by which a power cut takes what it has
	// acknowledged, such as fsync.
	Forgetful []string
	// Pooled says that a pooler is between this process and PostgreSQL.
	Pooled bool
	// Masters are those of Redis; none when it is inside the process.
	Masters []Master
}

// Master is a Redis that takes writes.
type Master struct {
	Addr     string        // without a password
	Eviction string        // its maxmemory-policy; empty when it does not tell
	Listpack int           // its zset-max-listpack-entries; 0 when it does not tell
	Ahead    time.Duration // of this process's clock, at the least
	// HidesIncarnation says that it does not tell which incarnation of its data it has.
	HidesIncarnation bool
}

// Survey asks the stores how they are set up. Errors: one does not answer.
//
// Cost: three round trips to each.
func (s *Stores) Survey(ctx context.Context) (found Survey, err error) {
	found.Pooled = s.Pooled
	if s.Dialect == dialect.Postgres {
		if err := s.surveyPostgres(ctx, &found); err != nil {
			return found, fmt.Errorf("ask PostgreSQL for its settings: %w", err)
		}
	}
	if s.Redis == nil || s.Embedded {
		return found, nil
	}
	var errs []error
	err = s.eachMaster(ctx, func(info map[string]string, master *redis.Client) {
		m := Master{Addr: master.Options().Addr, Eviction: info["maxmemory_policy"], HidesIncarnation: hidesIncarnation(info)}
		if answer, err := master.ConfigGet(ctx, listpackSetting).Result(); err == nil { // where a user may not ask, it is not known
			m.Listpack, _ = strconv.Atoi(answer[listpackSetting])
		}
		asked := time.Now()
		now, err := master.Time(ctx).Result()
		m.Ahead = ahead(now, asked, time.Now())
		errs = append(errs, err)
		found.Masters = append(found.Masters, m)
	}, "memory", "replication")
	return found, errors.Join(append(errs, err)...)
}

const listpackSetting = "zset-max-listpack-entries"

func (s *Stores) surveyPostgres(ctx context.Context, found *Survey) error {
	asked := time.Now()
	var now time.Time
	if err := s.SQL.QueryRowContext(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return err
	}
	found.SQLAhead = ahead(now, asked, time.Now())
	for _, setting := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		var value string
		if err := s.SQL.QueryRowContext(ctx, `SELECT current_setting($1)`, setting).Scan(&value); err != nil {
			return err
		}
		if value == "off" {
			found.Forgetful = append(found.Forgetful, setting)
		}
	}
	return nil
}

// ahead is how far a clock that said now is ahead, or behind where it is negative, at
// the least: it was read between the two moments.
func ahead(now, asked, answered time.Time) time.Duration {
	asked, answered = asked.Round(0), answered.Round(0) // clocks of walls, for that is what they are compared with
	switch {
	case now.After(answered):
		return now.Sub(answered)
	case now.Before(asked):
		return now.Sub(asked)
	}
	return 0
}

// Places says in words which SQL and which Redis the configuration, a valid one, names,
// without passwords.
func (c Config) Places() (sql, redis string) {
	t, err := c.parse()
	if err != nil {
		return "", ""
	}
	sql = "SQLite in "
	if t.postgres != nil {
		hosts := []string{net.JoinHostPort(t.postgres.Host, strconv.Itoa(int(t.postgres.Port)))}
		for _, other := range t.postgres.Fallbacks { // the same host may be there twice, with and without TLS
			if host := net.JoinHostPort(other.Host, strconv.Itoa(int(other.Port))); !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
		sql = fmt.Sprintf("PostgreSQL on %s, database %s", strings.Join(hosts, " or "), t.postgres.Database)
	} else {
		sql += t.sqlite.path
	}
	switch {
	case t.redis == nil:
		return sql, "inside the process"
	case t.redis.sentinels != nil:
		return sql, fmt.Sprintf("named %s by the Sentinels %s", t.redis.sentinels.MasterName, strings.Join(t.redis.addrs, ", "))
	}
	return sql, strings.Join(t.redis.addrs, ", ")
}

// Risks says how others on the network could read, or reach, what the configuration, a
// valid one, names. A store on this machine has none.
func (c Config) Risks() (risks []string) {
	t, err := c.parse()
	if err != nil {
		return nil
	}
	if p := t.postgres; p != nil && !here(p.Host) {
		plain := p.TLSConfig == nil
		for _, other := range p.Fallbacks {
			plain = plain || other.TLSConfig == nil
		}
		if plain {
			risks = append(risks, fmt.Sprintf("PostgreSQL on %s may be reached without TLS: add sslmode=verify-full, or require, to the URL", p.Host))
		}
	}
	if t.redis == nil || !slices.ContainsFunc(t.redis.addrs, func(addr string) bool { return !here(addr) }) {
		return risks
	}
	if t.redis.url.Scheme == "redis" {
		risks = append(risks, "Redis is reached without TLS: begin its URL with rediss://")
	}
	if t.redis.first != nil && t.redis.first.Password == "" || t.redis.sentinels != nil && t.redis.sentinels.Password == "" {
		risks = append(risks, "Redis is reached without a password: whoever reaches it reads and changes every timeline")
	}
	return risks
}

// here reports whether an address, or a host, is of this machine.
func here(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasPrefix(addr, "/") || ip != nil && ip.IsLoopback()
}
