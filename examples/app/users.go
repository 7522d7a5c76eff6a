package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	_ "modernc.org/sqlite" // the driver
)

var (
	errSignedOut = errors.New("signed out")
	errName      = errors.New("no name")
	errLeaving   = errors.New("the account is being deleted")
)

// users stores the app's users and their sessions in SQLite.
type users struct{ db *sql.DB }

// user is a row of the table. Tideline calls its id the external id. The id is random and
// never used again for another user.
type user struct{ id, name string }

const tables = `
CREATE TABLE IF NOT EXISTS users (
	id      TEXT PRIMARY KEY,
	name    TEXT NOT NULL UNIQUE COLLATE NOCASE,
	leaving INTEGER NOT NULL DEFAULT 0 -- wants the account to be deleted
);
CREATE TABLE IF NOT EXISTS sessions (
	secret_hash BLOB PRIMARY KEY,
	user_id     TEXT NOT NULL REFERENCES users ON DELETE CASCADE
);`

func openUsers(ctx context.Context, file string) (*users, error) {
	db, err := sql.Open("sqlite", file+"?_pragma=foreign_keys(1)&_pragma=journal_mode(wal)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, tables); err != nil {
		db.Close()
		return nil, fmt.Errorf("open %s: %w", file, err)
	}
	return &users{db}, nil
}

// signIn returns a new session for the user with this name, and creates the user if needed.
// Errors: errName, errLeaving.
func (u *users) signIn(ctx context.Context, name string) (session string, err error) {
	name = strings.Join(strings.Fields(name), " ")
	if n := utf8.RuneCountInString(name); n < 1 || n > 30 || !utf8.ValidString(name) {
		return "", errName
	}
	var id string
	var leaving bool
	err = u.db.QueryRowContext(ctx, `INSERT INTO users (id, name) VALUES (?, ?)
		ON CONFLICT (name) DO UPDATE SET name = users.name RETURNING id, leaving`, rand.Text(), name).Scan(&id, &leaving)
	if err != nil {
		return "", err
	}
	if leaving {
		return "", errLeaving
	}
	session = rand.Text()
	_, err = u.db.ExecContext(ctx, `INSERT INTO sessions (secret_hash, user_id) VALUES (?, ?)`, hashOf(session), id)
	return session, err
}

// signedIn returns the user of a session. Errors: errSignedOut.
func (u *users) signedIn(ctx context.Context, session string) (found user, err error) {
	err = u.db.QueryRowContext(ctx, `SELECT users.id, users.name FROM sessions JOIN users ON users.id = user_id
		WHERE secret_hash = ? AND NOT leaving`, hashOf(session)).Scan(&found.id, &found.name)
	if errors.Is(err, sql.ErrNoRows) {
		return user{}, errSignedOut
	}
	return found, err
}

func (u *users) signOut(ctx context.Context, session string) error {
	_, err := u.db.ExecContext(ctx, `DELETE FROM sessions WHERE secret_hash = ?`, hashOf(session))
	return err
}

// leave ends all sessions of a user and marks the account for deletion.
func (u *users) leave(ctx context.Context, id string) error {
	tx, err := u.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	for _, statement := range []string{`UPDATE users SET leaving = 1 WHERE id = ?`, `DELETE FROM sessions WHERE user_id = ?`} {
		if _, err := tx.ExecContext(ctx, statement, id); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// leaving returns the ids of up to 100 users marked for deletion.
func (u *users) leaving(ctx context.Context) (ids []string, err error) {
	rows, err := u.db.QueryContext(ctx, `SELECT id FROM users WHERE leaving LIMIT 100`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

func (u *users) delete(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if _, err := u.db.ExecContext(ctx, `DELETE FROM users WHERE id = ?`, id); err != nil {
			return err
		}
	}
	return nil
}

func hashOf(session string) []byte {
	hash := sha256.Sum256([]byte(session))
	return hash[:]
}
