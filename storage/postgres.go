package storage

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"tideline/internal/pipeline"
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
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, connectTimeout)
	cfg.RuntimeParams["application_name"] = cmp.Or(cfg.RuntimeParams["application_name"], "tideline")
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
	probe.ConnectTimeout = cmp.Or(probe.ConnectTimeout, connectTimeout)
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

// deadlines gives each statement or pipeline without a deadline a timeout, and each traced one a
// span. pgx calls it around every statement, up to the end of its rows, and around every pipeline.
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

// TraceBatchStart implements pgx.BatchTracer.
func (d deadlines) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	queries := make([]string, len(data.Batch.QueuedQueries))
	for i, q := range data.Batch.QueuedQueries {
		queries[i] = q.SQL
	}
	return d.TraceQueryStart(ctx, conn, pgx.TraceQueryStartData{SQL: strings.Join(queries, "; ")})
}

// TraceBatchQuery implements pgx.BatchTracer.
func (deadlines) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (d deadlines) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchEndData) {
	d.TraceQueryEnd(ctx, conn, pgx.TraceQueryEndData{Err: data.Err})
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
	return &postgresConn{Conn: conn.(*stdlib.Conn)}, nil
}

// postgresConn executes a pipeline in one round trip. It sends the BEGIN of a transaction together
// with its first statement, unless that statement returns rows.
type postgresConn struct {
	*stdlib.Conn
	tx *postgresTx // the last transaction; nil if it is not READ COMMITTED
}

// ResetSession implements driver.SessionResetter.
func (c *postgresConn) ResetSession(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return c.Conn.ResetSession(ctx)
}

// Ping implements driver.Pinger.
func (c *postgresConn) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return c.Conn.Ping(ctx)
}

const begin = "begin isolation level read committed"

// BeginTx implements driver.ConnBeginTx.
func (c *postgresConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if opts != (driver.TxOptions{}) {
		c.tx = nil
		if opts.Isolation == driver.IsolationLevel(sql.LevelDefault) {
			opts.Isolation = driver.IsolationLevel(sql.LevelReadCommitted)
		}
		return c.Conn.BeginTx(ctx, opts)
	}
	c.tx = &postgresTx{conn: c.Conn.Conn(), ctx: ctx, waits: true}
	return c.tx, nil
}

// beginNow sends the BEGIN of a transaction that waits for its first statement.
func (c *postgresConn) beginNow(ctx context.Context) error {
	if !c.begins() {
		return nil
	}
	_, err := c.Conn.Conn().Exec(ctx, begin)
	return err
}

// begins reports whether a transaction waits for the statement that is about to be sent.
func (c *postgresConn) begins() bool {
	waits := c.tx != nil && c.tx.waits
	if waits {
		c.tx.waits = false
	}
	return waits
}

// ExecContext implements driver.ExecerContext.
func (c *postgresConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if len(args) == 1 {
		if p, ok := args[0].Value.(*pipeline.Pipeline); ok {
			return c.send(ctx, p)
		}
	}
	if c.tx != nil && c.tx.waits && len(args) > 0 { // without arguments there may be several statements
		values := make([]any, len(args))
		for i, arg := range args {
			values[i] = arg.Value
		}
		return c.send(ctx, &pipeline.Pipeline{Statements: []pipeline.Statement{{Query: query, Args: values}}})
	}
	if err := c.beginNow(ctx); err != nil {
		return nil, err
	}
	return c.Conn.ExecContext(ctx, query, args)
}

// QueryContext implements driver.QueryerContext.
func (c *postgresConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.beginNow(ctx); err != nil {
		return nil, err
	}
	return c.Conn.QueryContext(ctx, query, args)
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *postgresConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.beginNow(ctx); err != nil {
		return nil, err
	}
	return c.Conn.PrepareContext(ctx, query)
}

// send executes a pipeline, after the BEGIN of a transaction that waits for its first statement. It
// returns how many rows the last statement without a result has changed.
func (c *postgresConn) send(ctx context.Context, p *pipeline.Pipeline) (driver.Result, error) {
	var batch pgx.Batch
	if c.begins() {
		batch.Queue(begin)
	}
	var changed driver.RowsAffected
	for _, s := range p.Statements {
		queued := batch.Queue(s.Query, s.Args...)
		if s.Row == nil {
			queued.Exec(func(tag pgconn.CommandTag) error {
				changed = driver.RowsAffected(tag.RowsAffected())
				return nil
			})
			continue
		}
		queued.Query(func(found pgx.Rows) error {
			if found.Next() {
				return found.Scan(s.Row...)
			}
			return found.Err()
		})
	}
	if p.Commit {
		batch.Queue("commit")
	}
	if err := c.Conn.Conn().SendBatch(ctx, &batch).Close(); err != nil {
		return nil, err
	}
	if p.Commit && c.tx != nil {
		c.tx.committed = true
	}
	return changed, nil
}

// postgresTx is a transaction. Its end needs no round trip if no statement was sent, or if a
// pipeline has committed it.
type postgresTx struct {
	conn      *pgx.Conn
	ctx       context.Context // from BeginTx: database/sql passes none to Commit and Rollback
	waits     bool            // for its first statement
	committed bool            // by a pipeline
}

// Commit implements driver.Tx.
func (t *postgresTx) Commit() error { return t.end("commit") }

// Rollback implements driver.Tx.
func (t *postgresTx) Rollback() error { return t.end("rollback") }

func (t *postgresTx) end(how string) error {
	if t.waits || t.committed {
		t.waits = false
		return nil
	}
	done, err := t.conn.Exec(t.ctx, how)
	if err != nil { // the transaction may still be open
		return errors.Join(err, t.conn.Close(context.WithoutCancel(t.ctx)))
	}
	if !strings.EqualFold(done.String(), how) {
		return pgx.ErrTxCommitRollback
	}
	return nil
}
