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

	"tideline/internal/redisclient"
)

// Survey describes settings of the stores that can make data slow, wrong or lost.
type Survey struct {
	// SQLAhead is the minimum by which the clock of PostgreSQL is ahead of this process's clock,
	// without the uncertainty of the round trip. Zero on SQLite.
	SQLAhead time.Duration
	// Forgetful are the PostgreSQL settings, such as fsync, that let a power failure lose
	// acknowledged commits.
	Forgetful []string
	// Pooled reports that a pooler is between this process and PostgreSQL.
	Pooled bool
	// Masters are the Redis masters. It is empty for the in-process Redis.
	Masters []Master
}

// Master describes a Redis master.
type Master struct {
	Addr     string        // without a password
	Eviction string        // maxmemory-policy; empty if unknown
	Listpack int           // zset-max-listpack-entries; 0 if unknown
	Ahead    time.Duration // minimum by which its clock is ahead of this process's clock
	// HidesIncarnation reports that the master does not tell the incarnation of its data.
	HidesIncarnation bool
}

// Survey asks the stores for their settings. It fails if a store does not answer.
//
// Cost: three round trips to each store.
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
	err = s.EachMaster(ctx, func(master redisclient.Client, addr string, info map[string]string) {
		m := Master{Addr: addr, Eviction: info["maxmemory_policy"], HidesIncarnation: hidesIncarnation(info)}
		if answer, err := master.ConfigGet(ctx, listpackSetting).Result(); err == nil { // unknown if the user may not run CONFIG
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

// ahead returns the minimum by which a clock that reads now is ahead of this process's clock;
// negative if it is behind. The clock was read between asked and answered.
func ahead(now, asked, answered time.Time) time.Duration {
	asked, answered = asked.Round(0), answered.Round(0) // compare wall clocks, because now is one
	switch {
	case now.After(answered):
		return now.Sub(answered)
	case now.Before(asked):
		return now.Sub(asked)
	}
	return 0
}

// Places describes in words the SQL and Redis servers of a valid configuration, without passwords.
func (c Config) Places() (sql, redis string) {
	t, err := parse(c)
	if err != nil {
		return "", ""
	}
	sql = "SQLite in "
	if t.postgres != nil {
		hosts := []string{net.JoinHostPort(t.postgres.Host, strconv.Itoa(int(t.postgres.Port)))}
		for _, other := range t.postgres.Fallbacks { // a host may appear twice, with and without TLS
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

// Risks describes how other parties on the network could read or reach the stores of a valid
// configuration. A store on this machine has no risks.
func (c Config) Risks() (risks []string) {
	t, err := parse(c)
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

// here reports whether an address or a host is on this machine.
func here(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasPrefix(addr, "/") || ip != nil && ip.IsLoopback()
}
