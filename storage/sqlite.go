package storage

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"golang.org/x/sync/semaphore"
	"modernc.org/sqlite"
	sqlitelib "modernc.org/sqlite/lib"

	"tideline/internal/clock"
	"tideline/internal/trace"
)

// sqliteConns is the size of the pool of connections: one for the writer, and the others for readers,
// which run beside the writer.
const sqliteConns = 8

// sqliteOptions apply to every connection. The options of the URL come after them.
//
//   - busy_timeout is how long opening a connection waits for another process, in milliseconds.
//     Then sqliteConnector sets it to 0, and statements retry until their context ends, for at most
//     sqlitePatience.
//   - journal_mode(WAL): readers and the writer do not wait for each other.
//   - foreign_keys: SQLite enforces foreign keys only if a connection asks for it.
//   - _txlock=immediate: a transaction locks the file when it begins. Otherwise a transaction that
//     reads first and writes later would fail at once if another had written in between, whatever
//     the timeout.
//   - _time_format and _timezone: SQLite stores and compares times as text, so all have one format
//     and one zone.
const sqliteOptions = "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)" +
	"&_pragma=foreign_keys(1)&_txlock=immediate&_time_format=sqlite&_timezone=UTC"

// The values of Config.SQLiteSync.
const (
	syncFull   = "full"
	syncNormal = "normal"
)

// sqliteDSN returns the data source name of a file whose path is escaped as in a URL. sync is a value
// of Config.SQLiteSync, which controls when a commit is answered. query has further options.
func sqliteDSN(escapedPath, sync, query string) string {
	dsn := "file:" + escapedPath + "?" + sqliteOptions + "&_pragma=synchronous(" + sync + ")"
	if sync == syncFull {
		dsn += "&_pragma=fullfsync(1)" // for macOS, where fsync leaves data in the disk cache
	}
	if query != "" {
		dsn += "&" + query
	}
	return dsn
}

// sqlitePatience bounds how long a writer waits for its turn. After that, the transaction that
// holds the turn counts as stuck.
const sqlitePatience = 10 * time.Second

// sqliteDriver makes the writers of this process take turns, in order of arrival. A writer waits
// until its context is done, and before it takes a connection, so that the pool stays free for
// readers, which run beside the writer.
type sqliteDriver struct {
	*entsql.Driver
	turn *semaphore.Weighted // held by the writer
}

func newSQLiteDriver(db *sql.DB) *sqliteDriver {
	return &sqliteDriver{entsql.OpenDB(dialect.SQLite, db), semaphore.NewWeighted(1)}
}

// begin waits for the turn. The caller releases it with end, which may be called more than once.
func (d *sqliteDriver) begin(ctx context.Context) (end func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, sqlitePatience)
	defer cancel()
	if d.turn.Acquire(waiting, 1) == nil {
		return sync.OnceFunc(func() { d.turn.Release(1) }), nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, errors.New("another transaction of this process has not ended in time")
}

// Tx implements dialect.Driver.
func (d *sqliteDriver) Tx(ctx context.Context) (dialect.Tx, error) { return d.BeginTx(ctx, nil) }

// BeginTx waits for the turn. The transaction keeps the turn until it ends.
func (d *sqliteDriver) BeginTx(ctx context.Context, opts *entsql.TxOptions) (dialect.Tx, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := d.Driver.BeginTx(ctx, opts)
	if err != nil {
		end()
		return nil, err
	}
	return sqliteTx{tx.(*entsql.Tx), end}, nil
}

type sqliteTx struct {
	*entsql.Tx
	end func()
}

// Commit implements dialect.Tx.
func (t sqliteTx) Commit() error {
	defer t.end()
	return t.Tx.Commit()
}

// Rollback implements dialect.Tx.
func (t sqliteTx) Rollback() error {
	defer t.end()
	return t.Tx.Rollback()
}

// Exec implements dialect.ExecQuerier.
func (d *sqliteDriver) Exec(ctx context.Context, query string, args, v any) error {
	end, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	return d.Driver.Exec(ctx, query, args, v)
}

// ExecContext implements entsql.ExecQuerier.
func (d *sqliteDriver) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	return d.Driver.ExecContext(ctx, query, args...)
}

// Query takes no turn, except for an INSERT whose id ent reads.
func (d *sqliteDriver) Query(ctx context.Context, query string, args, v any) error {
	rows, ok := v.(*entsql.Rows)
	if !ok || !strings.HasPrefix(query, "INSERT") {
		return d.Driver.Query(ctx, query, args, v)
	}
	end, err := d.begin(ctx)
	if err != nil {
		return err
	}
	if err := d.Driver.Query(ctx, query, args, v); err != nil {
		end()
		return err
	}
	rows.ColumnScanner = writtenRows{rows.ColumnScanner, end} // the statement ends when the rows are closed
	return nil
}

// writtenRows release the turn when they are closed.
type writtenRows struct {
	entsql.ColumnScanner
	end func()
}

func (r writtenRows) Close() error {
	defer r.end()
	return r.ColumnScanner.Close()
}

// sqliteConnector opens connections that stop waiting for the file lock when their context ends, which
// SQLite's own wait cannot do. Instead of waiting, they retry while a writer without a turn holds the
// file: another process, or a statement that was sent directly through the pool.
type sqliteConnector struct{ driver.Connector }

func newSQLiteConnector(dsn string) (driver.Connector, error) {
	c, err := sqlite.NewConnector(dsn)
	return sqliteConnector{c}, err
}

// Connect implements driver.Connector.
func (c sqliteConnector) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn, ok := opened.(sqliteDriverConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the SQLite driver's %T lacks a method", opened), opened.Close())
	}
	if _, err := conn.ExecContext(ctx, "PRAGMA busy_timeout = 0", nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return sqliteConn{conn, make(map[string]sqliteStmt)}, nil
}

// sqliteDriverConn combines the connection interfaces that database/sql looks for.
type sqliteDriverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// sqliteStmt combines the statement interfaces that database/sql looks for.
type sqliteStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// sqliteStatements is how many prepared statements a connection keeps. The tests of the API, the
// workers and the feeds use up to 166 different ones on one connection.
const sqliteStatements = 200

// sqliteConn keeps its statements prepared: in BenchmarkHomePage, the queries take 0.67 s of processor time
// instead of 1.63. It needs no lock, because database/sql makes one call to a connection and its rows at a
// time. SQLite prepares a statement again if the schema has changed.
type sqliteConn struct {
	sqliteDriverConn
	idle map[string]sqliteStmt // by query; a statement whose rows are open is not in it
}

// take returns the prepared statement of a query. The caller puts it back.
func (c sqliteConn) take(ctx context.Context, query string) (sqliteStmt, error) {
	if s, ok := c.idle[query]; ok {
		delete(c.idle, query)
		return s, nil
	}
	if len(c.idle) >= sqliteStatements {
		if err := c.closeIdle(); err != nil { // and begin anew, which needs no order of use
			return nil, err
		}
	}
	prepared, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s, ok := prepared.(sqliteStmt)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the SQLite driver's %T lacks a method", prepared), prepared.Close())
	}
	return s, nil
}

// putBack keeps a statement for the next use. err is the result of this one.
func (c sqliteConn) putBack(query string, s sqliteStmt, err error) error {
	if err != nil || c.idle[query] != nil { // the same query was read twice at once
		return errors.Join(err, s.Close())
	}
	c.idle[query] = s
	return nil
}

func (c sqliteConn) closeIdle() (err error) {
	for _, s := range c.idle {
		err = errors.Join(err, s.Close())
	}
	clear(c.idle)
	return err
}

// Close implements driver.Conn.
func (c sqliteConn) Close() error { return errors.Join(c.closeIdle(), c.sqliteDriverConn.Close()) }

// sqliteRows put their statement back when they are closed.
type sqliteRows struct {
	driver.Rows
	putBack func(error) error
}

// Close implements driver.Rows.
func (r sqliteRows) Close() error { return r.putBack(r.Rows.Close()) }

// BeginTx implements driver.ConnBeginTx.
func (c sqliteConn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	begin, span := statement(ctx, "BEGIN")
	err = whileBusy(begin, func() (err error) {
		tx, err = c.sqliteDriverConn.BeginTx(begin, opts)
		return err
	})
	span.End(err)
	if span != nil && err == nil {
		tx = tracedTx{tx, ctx}
	}
	return tx, err
}

// statement begins the span of a statement.
func statement(ctx context.Context, text string) (context.Context, *trace.Span) {
	return trace.Statement(ctx, "sqlite", text)
}

// tracedTx is a traced transaction. On SQLite, the commit takes most of the time.
type tracedTx struct {
	driver.Tx
	ctx context.Context
}

// Commit implements driver.Tx.
func (t tracedTx) Commit() error {
	_, span := statement(t.ctx, "COMMIT")
	err := t.Tx.Commit()
	span.End(err)
	return err
}

// ExecContext executes a single statement. With several, a retry would execute the first ones
// twice.
func (c sqliteConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Result, err error) {
	ctx, span := statement(ctx, query)
	defer func() { span.End(err) }()
	err = whileBusy(ctx, func() (err error) {
		s, err := c.take(ctx, query)
		if err != nil {
			return err
		}
		r, err = s.ExecContext(ctx, args)
		return c.putBack(query, s, err)
	})
	return r, err
}

// QueryContext also retries: while another process recovers the file, no connection can read it.
func (c sqliteConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	ctx, span := statement(ctx, query)
	defer func() { span.End(err) }()
	err = whileBusy(ctx, func() (err error) {
		s, err := c.take(ctx, query)
		if err != nil {
			return err
		}
		read, err := s.QueryContext(ctx, args)
		if err != nil {
			return c.putBack(query, s, err)
		}
		rows = sqliteRows{read, func(err error) error { return c.putBack(query, s, err) }}
		return nil
	})
	return rows, err
}

// whileBusy repeats do while it fails because the file is locked, for at most sqlitePatience, and
// not after ctx is done.
func whileBusy(ctx context.Context, do func() error) error {
	begun := time.Now()
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := do()
		if failed := (*sqlite.Error)(nil); !errors.As(err, &failed) || failed.Code()&0xff != sqlitelib.SQLITE_BUSY {
			return err
		}
		if time.Since(begun) > sqlitePatience {
			return err
		}
		if err := clock.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}
