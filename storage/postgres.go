package storage

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"tideline/internal/trace"
)

const (
	// Four processes fit into PostgreSQL's default of 100 connections.
	postgresConns = 20
	// Connections are replaced regularly, so that they follow a failover, or a new address behind
	// the same name.
	postgresConnLife = 30 * time.Minute
	postgresConnIdle = 5 * time.Minute
	// connectTimeout bounds opening a connection, and checking an idle one.
	connectTimeout = 5 * time.Second
	// statementTimeout is the default of Config.StatementTimeout. The longest statements of
	// Tideline take seconds. Migrations and the trimmer, which may take longer, set deadlines of
	// their own.
	statementTimeout = time.Minute
	// silence is how long the other end of a TCP connection may fail to acknowledge data or
	// keep-alive probes. Then the connection ends, and so does every wait for it.
	silence = 20 * time.Second
)

// openPostgres opens a pool in which every wait is bounded. A statement has the deadline of its
// context, or else a timeout of after. TCP closes a connection whose other end has vanished.
// PostgreSQL rolls back a transaction that is idle for longer than after, so a process that was
// suspended or cut off does not keep its locks. A statement waits at most lockWait for a lock; 0
// sets no separate limit.
//
// Transactions are READ COMMITTED, whatever the default of the server, the database or the role:
// code in a transaction reads rows that others have committed since the transaction began, and does
// not retry serialization failures.
//
// Behind a pooler, session settings would leak to other clients, so the settings of the role apply.
// See docs/deploy.md.
func openPostgres(cfg *pgx.ConnConfig, after, lockWait time.Duration, pooled bool) *sql.DB {
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "tideline"
	}
	cfg.Tracer = deadlines{after}
	dialer := net.Dialer{
		Timeout:         cfg.ConnectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silence / 2, Interval: silence / 4, Count: 2},
		Control:         endSilence,
	}
	cfg.DialFunc = dialer.DialContext
	const idle = "idle_in_transaction_session_timeout"
	set := []string{"SET default_transaction_isolation = 'read committed'"}
	if cfg.RuntimeParams[idle] == "" {
		set = append(set, fmt.Sprintf("SET %s = %d", idle, after.Milliseconds()))
	}
	if lockWait > 0 {
		set = append(set, fmt.Sprintf("SET lock_timeout = %d", max(1, lockWait.Milliseconds())))
	}
	var opts []stdlib.OptionOpenDB
	if !pooled {
		opts = append(opts, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
			ctx, cancel := context.WithTimeout(ctx, connectTimeout)
			defer cancel()
			_, err := conn.Exec(ctx, strings.Join(set, "; "))
			return err
		}))
	}
	db := sql.OpenDB(postgresConnector{stdlib.GetConnector(*cfg, opts...)})
	db.SetMaxOpenConns(postgresConns)
	db.SetMaxIdleConns(postgresConns)
	db.SetConnMaxLifetime(postgresConnLife)
	db.SetConnMaxIdleTime(postgresConnIdle)
	return db
}

// adaptToPooler detects a pooler between this process and PostgreSQL: the session that answers has
// a different process id from the one announced at connect. Behind a pooler, a statement prepared
// in one transaction may be unknown in the next. Statements are then described once and sent
// unnamed, unless default_query_exec_mode in the URL says otherwise.
//
// Cost: one connection.
func (s *Stores) adaptToPooler(ctx context.Context, cfg *pgx.ConnConfig) error {
	probe := cfg.Copy()
	if probe.ConnectTimeout == 0 {
		probe.ConnectTimeout = connectTimeout
	}
	conn, err := pgx.ConnectConfig(ctx, probe)
	if err != nil {
		return postgresSilent(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	answers, err := conn.PgConn().Exec(ctx, "SELECT pg_backend_pid()").ReadAll()
	if err != nil || len(answers) != 1 || len(answers[0].Rows) != 1 {
		return postgresSilent(err)
	}
	s.Pooled = string(answers[0].Rows[0][0]) != strconv.FormatUint(uint64(conn.PgConn().PID()), 10)
	if s.Pooled && cfg.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	return nil
}

func postgresSilent(err error) error { return fmt.Errorf("PostgreSQL does not answer: %w", err) }

// deadlines gives each statement without a deadline a timeout, and each traced statement a span.
// pgx calls it around every statement, up to the end of its rows.
type deadlines struct{ after time.Duration }

type (
	cancelKey struct{}
	spanKey   struct{}
)

// TraceQueryStart implements pgx.QueryTracer.
func (d deadlines) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if ctx, span := trace.Statement(ctx, "postgresql", data.SQL); span != nil {
		return d.bound(context.WithValue(ctx, spanKey{}, span))
	}
	return d.bound(ctx)
}

func (d deadlines) bound(ctx context.Context) context.Context {
	if _, bounded := ctx.Deadline(); bounded {
		return ctx
	}
	ctx, cancel := context.WithTimeout(ctx, d.after)
	return context.WithValue(ctx, cancelKey{}, cancel)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (deadlines) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if span, ok := ctx.Value(spanKey{}).(*trace.Span); ok {
		span.End(data.Err)
	}
	if cancel, ok := ctx.Value(cancelKey{}).(context.CancelFunc); ok {
		cancel()
	}
}

// postgresConnector opens connections that bound pgx's check of an idle connection before it is
// used.
type postgresConnector struct{ driver.Connector }

// Connect implements driver.Connector.
func (c postgresConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return postgresConn{conn.(*stdlib.Conn)}, nil
}

type postgresConn struct{ *stdlib.Conn }

// ResetSession implements driver.SessionResetter.
func (c postgresConn) ResetSession(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return c.Conn.ResetSession(ctx)
}

// BeginTx implements driver.ConnBeginTx.
func (c postgresConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if opts.Isolation == driver.IsolationLevel(sql.LevelDefault) {
		opts.Isolation = driver.IsolationLevel(sql.LevelReadCommitted)
	}
	return c.Conn.BeginTx(ctx, opts)
}

// Ping implements driver.Pinger.
func (c postgresConn) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return c.Conn.Ping(ctx)
}
