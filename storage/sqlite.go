package storage

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"modernc.org/sqlite"
	sqlitelib "modernc.org/sqlite/lib"
)

// sqlitePatience is how long a writer waits for its turn when its context sets
// no limit: then something holds the file that will not let go.
const sqlitePatience = 10 * time.Second

// sqliteConnector opens connections whose waits end with their context. SQLite
// itself waits in a handler that knows no context, and in no order; here the
// writers of this process take turns in theirs, and ask again and again while
// another process writes.
type sqliteConnector struct {
	driver.Connector
	turn chan struct{} // has room for the one who writes
}

func newSQLiteConnector(dsn string) (driver.Connector, error) {
	c, err := sqlite.NewConnector(dsn)
	return sqliteConnector{Connector: c, turn: make(chan struct{}, 1)}, err
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
	return &sqliteConn{sqliteDriverConn: conn, turn: c.turn}, nil
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

type sqliteConn struct {
	sqliteDriverConn
	turn chan struct{}
	mine bool // the turn, for a transaction
}

// BeginTx waits for the turn until ctx is done. It is given back at the
// transaction's end.
func (c *sqliteConn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	err = c.write(ctx, func() (err error) {
		tx, err = c.sqliteDriverConn.BeginTx(ctx, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.mine = true
	return sqliteTx{tx, c}, nil
}

// ExecContext waits as BeginTx does. It takes one statement: of several, the
// first ones might be executed again.
func (c *sqliteConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Result, err error) {
	do := func() (err error) {
		r, err = c.sqliteDriverConn.ExecContext(ctx, query, args)
		return err
	}
	if c.mine {
		err = do()
	} else if err = c.write(ctx, do); err == nil {
		<-c.turn
	}
	return r, err
}

// QueryContext waits while another process keeps the file from being read, as
// its recovery does, or written, by a statement that also returns rows.
func (c *sqliteConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	do := func() (err error) {
		rows, err = c.sqliteDriverConn.QueryContext(ctx, query, args)
		return err
	}
	if c.mine {
		err = do()
	} else {
		err = whileBusy(ctx, do)
	}
	return rows, err
}

// Close see driver.Conn.
func (c *sqliteConn) Close() error {
	c.pass()
	return c.sqliteDriverConn.Close()
}

// write does something that writes when it is this connection's turn, which is
// kept when that has succeeded.
func (c *sqliteConn) write(ctx context.Context, do func() error) error {
	limited, cancel := context.WithTimeout(ctx, sqlitePatience)
	defer cancel()
	select {
	case c.turn <- struct{}{}:
	case <-limited.Done():
		if err := ctx.Err(); err != nil {
			return err
		}
		return errors.New("another transaction of this process does not end")
	}
	err := whileBusy(ctx, do)
	if err != nil {
		<-c.turn
	}
	return err
}

// pass gives the turn of a transaction to the next.
func (c *sqliteConn) pass() {
	if c.mine {
		c.mine = false
		<-c.turn
	}
}

type sqliteTx struct {
	driver.Tx
	conn *sqliteConn
}

// Commit see driver.Tx.
func (t sqliteTx) Commit() error {
	defer t.conn.pass()
	return t.Tx.Commit()
}

// Rollback see driver.Tx.
func (t sqliteTx) Rollback() error {
	defer t.conn.pass()
	return t.Tx.Rollback()
}

// whileBusy repeats what another process's lock keeps from being done.
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
