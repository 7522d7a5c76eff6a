// Package migration changes the tables from version to version while processes use them.
//
// Invariants:
//
//   - Each migration either expands or contracts. After an expanding migration, processes of the
//     previous version can still use the tables. A contracting migration removes what only they
//     need.
//   - A process expands at its start. Contracting migrations run only on request, except on an
//     empty database.
//   - Expanding migrations do not depend on contracting ones. The tables end up the same whether
//     each contracting migration runs in its turn or all of them run much later.
//   - Processes take turns. An interrupted migration runs again from its beginning.
//   - On PostgreSQL, no statement queues for a lock longer than Options.LockTimeout, because later
//     statements would wait behind it. It gives way and tries again.
package migration

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"entgo.io/ent/dialect"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"tideline/ent/migrate/migrations"
)

// Phase says when a migration may run, relative to the processes that use the tables.
type Phase string

const (
	// Expand is the phase of migrations that processes of the previous version do not notice.
	Expand Phase = "expand"
	// Contract is the phase of migrations that must wait until no process of a previous version
	// runs.
	Contract Phase = "contract"
)

// files holds the migrations, in one directory per dialect.
var files fs.FS = migrations.FS

// mark is the line that marks the file of a contracting migration.
const mark = "-- tideline: contract"

// Migration is one step from a version of the tables to the next.
type Migration struct {
	// Version is a date and a time, such as 20261128031534.
	Version int64
	Name    string
	Phase   Phase
	// Transaction says that all statements run in one transaction, which keeps its locks to the
	// end. Otherwise each statement commits by itself.
	Transaction bool
	Statements  []Statement
}

// Statement is one statement of a migration, on one line, with its effects on other statements.
type Statement struct {
	SQL string
	// Effects concern tables that existed before. It is nil on SQLite, where a writing transaction
	// blocks all other writers.
	Effects []Effect
}

// Plan lists the migrations that a database lacks.
type Plan struct {
	// Fresh says that there are no tables yet. All migrations may then run at once.
	Fresh bool
	// Pending lists the missing migrations in order.
	Pending []Migration
}

// Of returns the pending migrations of a phase.
func (p Plan) Of(phase Phase) []Migration {
	return slices.DeleteFunc(slices.Clone(p.Pending), func(m Migration) bool { return m.Phase != phase })
}

// ErrTooOld means that the database has tables that the first migration did not create.
var ErrTooOld = errors.New("the tables were made by a version before 0.1.0 and cannot be migrated: run 'tideline export' with that version and 'tideline import' with this one, into an empty database")

// Lacks compares a database with the migrations of this program. It ignores migrations of a newer
// program. Error: ErrTooOld.
//
// Cost: two queries.
func Lacks(ctx context.Context, db *sql.DB, dialectName string) (Plan, error) {
	all, err := All(dialectName)
	if err != nil {
		return Plan{}, err
	}
	applied, err := appliedTo(ctx, db, dialectName)
	if err != nil {
		return Plan{}, fmt.Errorf("pending migrations: %w", err)
	}
	if len(applied) > 0 && !applied[all[0].Version] {
		return Plan{}, ErrTooOld
	}
	return Plan{
		Fresh:   len(applied) == 0,
		Pending: slices.DeleteFunc(all, func(m Migration) bool { return applied[m.Version] }),
	}, nil
}

// appliedTo returns the versions of the applied migrations; none if there are no tables.
func appliedTo(ctx context.Context, db *sql.DB, dialectName string) (map[int64]bool, error) {
	there := "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = '" + goose.DefaultTablename + "'"
	if dialectName == dialect.Postgres {
		there = "SELECT count(*) FROM pg_class WHERE oid = to_regclass('" + goose.DefaultTablename + "')"
	}
	var n int
	if err := db.QueryRowContext(ctx, there).Scan(&n); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, nil
	}
	store, err := database.NewStore(gooseDialect(dialectName), goose.DefaultTablename)
	if err != nil {
		return nil, err
	}
	rows, err := store.ListMigrations(ctx, db)
	if err != nil {
		return nil, err
	}
	applied := map[int64]bool{}
	for _, row := range rows {
		if row.Version > 0 && row.IsApplied { // version 0 is inserted when the table is created
			applied[row.Version] = true
		}
	}
	return applied, nil
}

func gooseDialect(dialectName string) goose.Dialect {
	if dialectName == dialect.Postgres {
		return goose.DialectPostgres
	}
	return goose.DialectSQLite3
}

func folderOf(dialectName string) string {
	if dialectName == dialect.Postgres {
		return "postgres"
	}
	return "sqlite"
}

// All reads the migrations of this program for dialect.SQLite or dialect.Postgres, in order. An
// error means that the program is broken.
func All(dialectName string) ([]Migration, error) {
	names, err := fs.Glob(files, folderOf(dialectName)+"/*.sql")
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	var all []Migration
	indexes := map[string]string{}
	for _, file := range names {
		text, err := fs.ReadFile(files, file)
		if err != nil {
			return nil, fmt.Errorf("migrations: %w", err)
		}
		m, err := read(path.Base(file), text)
		if err != nil {
			return nil, err
		}
		if dialectName == dialect.Postgres {
			m.judge(indexes)
		}
		all = append(all, m)
	}
	return all, nil
}

// read parses a file as goose does: a statement ends with a semicolon at the end of a line, or
// stands between StatementBegin and StatementEnd comments.
func read(file string, text []byte) (Migration, error) {
	number, name, _ := strings.Cut(strings.TrimSuffix(file, ".sql"), "_")
	version, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return Migration{}, fmt.Errorf("the file %s must begin with its version: %w", file, err)
	}
	m := Migration{Version: version, Name: name, Phase: Expand, Transaction: true}
	var statement []string
	up, whole := false, false
	end := func() {
		if joined := strings.Join(strings.Fields(strings.Join(statement, " ")), " "); joined != "" {
			m.Statements = append(m.Statements, Statement{SQL: joined})
		}
		statement = nil
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		switch annotation, comment := strings.CutPrefix(line, "--"); {
		case line == mark:
			m.Phase = Contract
		case comment && strings.Contains(annotation, "+goose"):
			switch strings.TrimSpace(strings.Replace(annotation, "+goose", "", 1)) {
			case "Up":
				up = true
			case "Down":
				up = false
			case "NO TRANSACTION":
				m.Transaction = false
			case "StatementBegin":
				whole = true
			case "StatementEnd":
				whole = false
				end()
			}
		case !up || comment:
		default:
			statement = append(statement, line)
			if !whole && strings.HasSuffix(line, ";") {
				end()
			}
		}
	}
	if err := lines.Err(); err != nil {
		return Migration{}, fmt.Errorf("the migration %s: %w", file, err)
	}
	return m, nil
}

// Sizes returns the size of each PostgreSQL table in words, from PostgreSQL's estimates. It is
// empty on SQLite.
//
// Cost: one query.
func Sizes(ctx context.Context, db *sql.DB, dialectName string) (map[string]string, error) {
	if dialectName != dialect.Postgres {
		return nil, nil
	}
	rows, err := db.QueryContext(ctx, `SELECT relname, reltuples::bigint, pg_size_pretty(pg_total_relation_size(oid))
		FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace`)
	if err != nil {
		return nil, fmt.Errorf("sizes of tables: %w", err)
	}
	defer rows.Close()
	sizes := map[string]string{}
	for rows.Next() {
		var table, size string
		var n int64
		if err := rows.Scan(&table, &n, &size); err != nil {
			return nil, fmt.Errorf("sizes of tables: %w", err)
		}
		if n >= 0 { // -1 before the first VACUUM or ANALYZE
			size = fmt.Sprintf("about %d rows, %s", n, size)
		}
		sizes[table] = size
	}
	return sizes, rows.Err()
}
