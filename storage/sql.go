package storage

import (
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	// One writer at a time and readers beside it: more connections only wait.
	sqliteConns = 8
	// Four processes fit into PostgreSQL's default of 100 connections.
	postgresConns = 20
	// Connections are replaced now and then, so that they follow a failover or a
	// new address behind the same name.
	postgresConnLife = 30 * time.Minute
	postgresConnIdle = 5 * time.Minute
	connectTimeout   = 5 * time.Second
)

// sqliteOptions are given to every connection, before those of the URL.
//
//   - busy_timeout: how long, in milliseconds, opening waits for another process.
//     What comes later waits as long as its context: see sqliteConnector.
//   - _txlock=immediate: a transaction takes its turn when it begins. One that
//     reads first and writes later would fail at once when another has written
//     in between, whatever the timeout.
//   - WAL with synchronous=NORMAL: readers and the writer do not wait for each
//     other; a crash of the machine, not of the process, may lose the last
//     commits but never corrupts.
//   - UTC in one format: times are stored as text, and compared as text.
const sqliteOptions = "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)" +
	"&_pragma=foreign_keys(1)&_txlock=immediate&_time_format=sqlite&_timezone=UTC"

// sqliteDSN is the data source name of a file whose path is escaped as in a URL.
func sqliteDSN(escapedPath, query string) string {
	dsn := "file:" + escapedPath + "?" + sqliteOptions
	if query != "" {
		dsn += "&" + query
	}
	return dsn
}

func openPostgres(cfg *pgx.ConnConfig) *sql.DB {
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "tideline"
	}
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(postgresConns)
	db.SetMaxIdleConns(postgresConns)
	db.SetConnMaxLifetime(postgresConnLife)
	db.SetConnMaxIdleTime(postgresConnIdle)
	return db
}
