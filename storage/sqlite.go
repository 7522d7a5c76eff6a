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
	"modernc.org/sqlite"
	sqlitelib "modernc.org/sqlite/lib"
)

// sqlitePatience is how long a writer waits for its turn when its context sets
// no limit: then something holds the file that will not let go.
const sqlitePatience = 10 * time.Second

// sqliteDriver has the writers of this process take turns, in the order in which
// they come, each until its context is done. They wait before they take a
// connection: the pool is there for those who read beside the one who writes.
type sqliteDriver struct {
	*entsql.Driver
	turn chan struct{} // has room for the one who writes
}

func newSQLiteDriver(db *sql.DB) *sqliteDriver {
	return &sqliteDriver{entsql.OpenDB(dialect.SQLite, db), make(chan struct{}, 1)}
}

// begin waits for the turn, which end gives to the next. End may be called again.
func (d *sqliteDriver) begin(ctx context.Context) (end func(), err error) {
	limit := time.NewTimer(sqlitePatience)
	defer limit.Stop()
	select {
	case d.turn <- struct{}{}:
		return sync.OnceFunc(func() { <-d.turn }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-limit.C:
		return nil, errors.New("another transaction of this process does not end")
	}
}

// Tx see dialect.Driver.
func (d *sqliteDriver) Tx(ctx context.Context) (dialect.Tx, error) { return d.BeginTx(ctx, nil) }

// BeginTx waits for the turn, which the transaction keeps to its end.
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

// Commit see dialect.Tx.
func (t sqliteTx) Commit() error {
	defer t.end()
	return t.Tx.Commit()
}

// Rollback see dialect.Tx.
func (t sqliteTx) Rollback() error {
	defer t.end()
	return t.Tx.Rollback()
}

// Exec see dialect.ExecQuerier.
func (d *sqliteDriver) Exec(ctx context.Context, query string, args, v any) error {
	end, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	return d.Driver.Exec(ctx, query, args, v)
}

// ExecContext see entsql.ExecQuerier.
func (d *sqliteDriver) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	return d.Driver.ExecContext(ctx, query, args...)
}

// Query takes no turn, unless it is ent's way to write a row and learn its id.
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
	rows.ColumnScanner = writtenRows{rows.ColumnScanner, end} // what writes them ends with them
	return nil
}

type writtenRows struct {
	entsql.ColumnScanner
	end func()
}

func (r writtenRows) Close() error {
	defer r.end()
	return r.ColumnScanner.Close()
}

// sqliteConnector opens connections whose waits end with their context. SQLite
// itself waits in a handler that knows none; here they ask again and again while
// somebody else writes who takes no turns: another process, or who uses the pool
// itself.
type sqliteConnector struct{ driver.Connector }

func newSQLiteConnector(dsn string) (driver.Connector, error) {
	c, err := sqlite.NewConnector(dsn)
	return sqliteConnector{c}, err
}

// Connect see driver.Connector.
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
	return sqliteConn{conn}, nil
}

// sqliteDriverConn is what the driver's connections are, besides driver.Conn:
// database/sql looks for each of these.
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

type sqliteConn struct{ sqliteDriverConn }

// BeginTx see driver.ConnBeginTx.
func (c sqliteConn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	err = whileBusy(ctx, func() (err error) {
		tx, err = c.sqliteDriverConn.BeginTx(ctx, opts)
		return err
	})
	return tx, err
}

// ExecContext takes one statement: of several, the first ones might be executed
// again.
func (c sqliteConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Result, err error) {
	err = whileBusy(ctx, func() (err error) {
		r, err = c.sqliteDriverConn.ExecContext(ctx, query, args)
		return err
	})
	return r, err
}

// QueryContext waits also while another process keeps the file from being read,
// as its recovery does.
func (c sqliteConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = whileBusy(ctx, func() (err error) {
		rows, err = c.sqliteDriverConn.QueryContext(ctx, query, args)
		return err
	})
	return rows, err
}

// whileBusy repeats what somebody else's lock keeps from being done.
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
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
