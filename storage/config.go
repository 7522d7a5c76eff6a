package storage

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// Config chooses the databases. With only DataDir set, it is the embedded setup: a SQLite file and
// a Redis inside the process.
type Config struct {
	// DataDir holds the SQLite file and the lock of the embedded setup. If it is missing, it is
	// created with access for its owner only. Required unless both URLs are set.
	DataDir string
	// DatabaseURL is postgres://… or postgresql://… for PostgreSQL, or sqlite://PATH or file:PATH
	// for SQLite. Defaults to the file tideline.db in DataDir.
	DatabaseURL string
	// SQLiteSync is "full" or "normal". With "full", SQLite answers a commit when it is on disk, so
	// it survives a power failure. With "normal", SQLite answers earlier: a power failure may lose
	// the last commits, but does not corrupt the file. Either way, commits survive a crash of the
	// process. Defaults to "full".
	SQLiteSync string
	// RedisURL is redis://[USER:PASSWORD@]HOST:PORT[/DB], rediss://… for TLS, or unix:///PATH. The
	// nodes of a Redis Cluster are separated by commas or given as ?addr=HOST:PORT. One node is
	// enough: it reports that it belongs to a cluster. With ?master_name=NAME, the addresses are
	// Redis Sentinels, which know the address of that master. USER and PASSWORD then authenticate
	// to the Sentinels, and ?username= and ?password= to Redis itself. Defaults to a Redis inside
	// the process.
	RedisURL string
	// RedisIncarnation controls a Redis that hides the incarnation of its data, master_replid:
	// "required" refuses it, "optional" accepts it. With "optional", a feed that was rolled back,
	// by a snapshot or by a replica without the latest writes, may look current. Defaults to
	// "required".
	RedisIncarnation string
	// StatementTimeout bounds a PostgreSQL statement whose context has no deadline, and how long a
	// transaction may be idle. Defaults to 1 minute.
	StatementTimeout time.Duration
}

// Validate returns an error that says what is wrong and what is allowed, or nil if [Open] would
// accept the configuration. It accesses no file and no server.
func (c Config) Validate() error {
	_, err := parse(c)
	return err
}

const (
	databaseName = "tideline.db"
	lockName     = "tideline.lock"
	defaultPort  = "6379" // of Redis
	sentinelPort = "26379"
)

// Connections returns how many statements of a process PostgreSQL executes at once. It returns 0
// for SQLite, which executes writes one after another.
func (c Config) Connections() int {
	if t, err := parse(c); err != nil || t.postgres == nil {
		return 0
	}
	return postgresConns
}

// target is a parsed Config. Either postgres or sqlite is set. redis is nil for the in-process
// Redis.
type target struct {
	postgres *pgx.ConnConfig
	sqlite   *sqliteFile
	redis    *redisServers
}

// sqliteFile is the path of a file and the data source name that opens it.
type sqliteFile struct{ path, dsn string }

// redisServers are the addresses of a single Redis, of a Redis Cluster, or of Sentinels.
type redisServers struct {
	url       *url.URL // of the first address
	addrs     []string // all addresses, without passwords, so that messages can show them
	first     *redis.Options
	sentinels *redis.FailoverOptions // nil without Sentinels; otherwise first is nil
}

// parse is no method: each package that uses a Config would compile what redisclient.Client keeps away from it, for
// the options of Redis in a target. The same holds for openSQL and openRedis.
func parse(c Config) (target, error) {
	var t target
	var errs []error
	if c.DataDir == "" && (c.DatabaseURL == "" || c.RedisURL == "") {
		errs = append(errs, errors.New(
			"data directory: must be set, unless both a database URL and a Redis URL are"))
	}
	if c.SQLiteSync != "" && c.SQLiteSync != syncFull && c.SQLiteSync != syncNormal {
		errs = append(errs, fmt.Errorf("SQLiteSync is %q: it must be %s or %s", c.SQLiteSync, syncFull, syncNormal))
	}
	if i := c.RedisIncarnation; i != "" && i != incarnationRequired && i != incarnationOptional {
		errs = append(errs, fmt.Errorf("RedisIncarnation is %q: it must be %s or %s", i, incarnationRequired, incarnationOptional))
	}
	errs = append(errs, t.parseDatabase(c), t.parseRedis(c))
	return t, errors.Join(errs...)
}

func (t *target) parseDatabase(c Config) error {
	raw := c.DatabaseURL
	switch {
	case raw == "":
		path := filepath.Join(c.DataDir, databaseName)
		escaped := (&url.URL{Path: path}).EscapedPath()
		t.sqlite = &sqliteFile{path: path, dsn: sqliteDSN(escaped, cmp.Or(c.SQLiteSync, syncFull), "")}
		return nil
	case strings.HasPrefix(raw, "postgres://"), strings.HasPrefix(raw, "postgresql://"):
		if _, err := splitURL(raw); err != nil {
			return fmt.Errorf("database URL: %w", err)
		}
		var err error
		if t.postgres, err = pgx.ParseConfig(raw); err != nil {
			_, why, _ := strings.Cut(err.Error(), "`: ") // pgx repeats the URL before this
			return fmt.Errorf("database URL: %s", why)
		}
		return nil
	}
	rest, ok := strings.CutPrefix(raw, "sqlite://")
	if !ok {
		rest, ok = strings.CutPrefix(raw, "file:")
		rest = strings.TrimPrefix(rest, "//")
	}
	if !ok {
		return errors.New("database URL: must be empty (a SQLite file in the data directory), or begin with " +
			"postgres://, postgresql://, sqlite:// or file:")
	}
	escaped, query, _ := strings.Cut(rest, "?")
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return fmt.Errorf("database URL: path of the SQLite file: %w", err)
	}
	if path == "" || strings.Contains(path, ":memory:") || strings.Contains(query, "mode=memory") {
		return errors.New("database URL: must name a SQLite file; a database in memory does not last")
	}
	t.sqlite = &sqliteFile{path: path, dsn: sqliteDSN(escaped, cmp.Or(c.SQLiteSync, syncFull), query)}
	return nil
}

func (t *target) parseRedis(c Config) error {
	raw := c.RedisURL
	if raw == "" {
		return nil
	}
	switch scheme, _, _ := strings.Cut(raw, "://"); scheme {
	case "redis", "rediss", "unix":
	default:
		return errors.New("Redis URL: must be empty (a Redis inside the process), or begin with " +
			"redis://, rediss:// or unix://")
	}
	parts, err := splitURL(raw)
	if err != nil {
		return fmt.Errorf("Redis URL: %w", err)
	}
	u := parts.first
	query := u.Query()
	hosts := append(parts.others, query["addr"]...)
	query.Del("addr")
	u.RawQuery = query.Encode()
	t.redis = &redisServers{url: u}
	if query.Has("master_name") {
		err = t.redis.parseSentinels()
	} else {
		err = t.redis.parseFirst()
	}
	if err != nil {
		return fmt.Errorf("Redis URL: %w", withoutURL(err))
	}
	for _, host := range hosts {
		if host == "" {
			return errors.New("Redis URL: an address in the list is empty")
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), t.redis.port())
		}
		t.redis.addrs = append(t.redis.addrs, host)
	}
	return nil
}

func (r *redisServers) parseFirst() (err error) {
	if r.first, err = redis.ParseURL(r.url.String()); err != nil {
		return err
	}
	r.addrs = []string{r.first.Addr}
	return bounded(r.first.DialTimeout, r.first.ReadTimeout, r.first.WriteTimeout, r.first.PoolTimeout)
}

func (r *redisServers) parseSentinels() (err error) {
	if r.url.Query().Get("master_name") == "" {
		return errors.New("master_name must name the master that the Sentinels watch")
	}
	if r.url.Scheme == "unix" {
		return errors.New("a Redis Sentinel is reached by redis:// or rediss://, not by a socket file")
	}
	u := *r.url
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), sentinelPort)
	}
	if r.sentinels, err = redis.ParseFailoverURL(u.String()); err != nil {
		return err
	}
	r.addrs = slices.Clone(r.sentinels.SentinelAddrs)
	return bounded(r.sentinels.DialTimeout, r.sentinels.ReadTimeout, r.sentinels.WriteTimeout, r.sentinels.PoolTimeout)
}

// bounded returns an error if a timeout is negative, which turns it off in go-redis.
func bounded(dial, read, write, pool time.Duration) error {
	for option, timeout := range map[string]time.Duration{"dial_timeout": dial, "read_timeout": read, "write_timeout": write, "pool_timeout": pool} {
		if timeout < 0 {
			return fmt.Errorf("%s must be above 0: a Redis that does not answer would be waited for without end", option)
		}
	}
	return nil
}

// port returns the default port of an address without a port.
func (r *redisServers) port() string {
	if r.sentinels != nil {
		return sentinelPort
	}
	return defaultPort
}

// hostedURL is a URL that may name several hosts, separated by commas.
type hostedURL struct {
	first  *url.URL // with the first host
	others []string
}

var errNotURL = errors.New("is not a URL: in the user name and the password, write each character other than letters, digits, -, ., _ and ~ " +
	"as % and its code, such as %40 for @, %2F for /, %23 for #, %3F for ? and %25 for %")

// splitURL splits off all hosts but the first, because url.Parse accepts only one. Its error
// contains nothing of raw: if a password is not escaped, parts of it look like a host, a port, a
// path or a query.
func splitURL(raw string) (u hostedURL, err error) {
	scheme, rest, _ := strings.Cut(raw, "://")
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	user := ""
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		user, authority = authority[:i+1], authority[i+1:]
	}
	hosts := strings.Split(authority, ",")
	u.others = hosts[1:]
	u.first, err = url.Parse(scheme + "://" + user + hosts[0] + tail)
	// If there is a second @, parsers disagree about where the password ends.
	if err != nil || u.first.Fragment != "" || strings.Count(user, "@") > 1 || user == "" && strings.Contains(tail, "@") && strings.Contains(authority, ":") {
		return u, errNotURL
	}
	return u, nil
}

// withoutURL removes the URL, which may contain a password, from a parse error.
func withoutURL(err error) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}
