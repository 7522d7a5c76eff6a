// Package migration changes the tables from version to version while processes use them.
//
// What holds:
//
//   - A migration expands or contracts. What expands leaves the tables usable for the
//     processes of the version before; what contracts takes away what only they need.
//   - A process at its start expands. Nothing contracts by itself, but on a database that
//     was empty.
//   - Those that expand do not depend on those that contract: the tables are the same
//     whether each contracts in its turn, or all of them long after.
//   - Processes take turns. A migration that is interrupted runs once more from its
//     beginning.
//   - On PostgreSQL no statement queues for a lock longer than Options.LockTimeout, for
//     whoever comes after it waits behind it. It gives way, and tries again.
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

// Phase says when a migration may run, seen from the processes that use the tables.
type Phase string

const (
	// Expand is for migrations that processes of the version before do not notice.
	Expand Phase = "expand"
	// Contract is for those that wait until no process of a version before is left.
	Contract Phase = "contract"
)

// files are the migrations, in a folder for each dialect.
var files fs.FS = migrations.FS

// mark is the line in the file of a migration that contracts.
const mark = "-- tideline: contract"

// Migration is one step from a version of the tables to the next.
type Migration struct {
	// Version is a date and a time: 20261128031534.
	Version int64
	Name    string
	Phase   Phase
	// Transaction says that the statements are one transaction: locks are kept to its end.
	// Otherwise each statement ends by itself.
	Transaction bool
	Statements  []Statement
}

// Statement is one statement of a migration, in one line, and what it does to others.
type Statement struct {
	SQL string
	// Effects are on tables that were there before; nil on SQLite, where a transaction
	// that writes holds up all others that do.
	Effects []Effect
}

// Plan is what a database lacks.
type Plan struct {
	// Fresh says that there are no tables yet. Then all of it may run at once.
	Fresh bool
	// Pending are the migrations in their order.
	Pending []Migration
}

// Of returns those of a phase that are pending.
func (p Plan) Of(phase Phase) []Migration {
	return slices.DeleteFunc(slices.Clone(p.Pending), func(m Migration) bool { return m.Phase != phase })
}

// ErrTooOld says that a database has tables, and that the first migration did not make them.
var ErrTooOld = errors.New("the tables were made by a version before 0.1.0 and cannot be migrated: run 'tideline export' with that version and 'tideline import' with this one, into an empty database")

// Lacks compares a database with the migrations of this program. Those that it does not
// know, of a newer one, are left out. Error: ErrTooOld.
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

// appliedTo is empty where there are no tables.
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
		if row.Version > 0 && row.IsApplied { // 0 is written with the table
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

// All reads the migrations of this program for dialect.SQLite or dialect.Postgres, in
// their order. An error is one of the program.
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

// read reads a file as goose does: statements end with a semicolon at the end of a line,
// or stand between two comments that say so.
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

// Sizes says of each table of PostgreSQL how large it is, in words, as far as PostgreSQL
// knows. It is empty on SQLite.
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
		if n >= 0 { // -1 before PostgreSQL has looked
			size = fmt.Sprintf("about %d rows, %s", n, size)
		}
		sizes[table] = size
	}
	return sizes, rows.Err()
}
