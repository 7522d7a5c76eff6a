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
	errSignedOut    = errors.New("signed out")
	errBadName      = errors.New("a name must have 1 to 30 characters")
	errBeingDeleted = errors.New("the account is being deleted")
)

// users stores the app's users and their sessions in SQLite.
type users struct{ db *sql.DB }

// user is a row of the table users. Tideline calls its id the external id. The id is random, and no
// other user ever gets it.
type user struct{ id, name string }

const tables = `
CREATE TABLE IF NOT EXISTS users (
	id      TEXT PRIMARY KEY,
	name    TEXT NOT NULL UNIQUE COLLATE NOCASE,
	leaving INTEGER NOT NULL DEFAULT 0 -- the account is marked for deletion
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

// signIn returns a new session for the user with this name, and creates the user if needed. Demo only:
// there is no password. Errors: errBadName, errBeingDeleted.
func (u *users) signIn(ctx context.Context, name string) (session string, err error) {
	name = strings.Join(strings.Fields(name), " ")
	if n := utf8.RuneCountInString(name); n < 1 || n > 30 || !utf8.ValidString(name) {
		return "", errBadName
	}
	var id string
	var beingDeleted bool
	err = u.db.QueryRowContext(ctx, `INSERT INTO users (id, name) VALUES (?, ?)
		ON CONFLICT (name) DO UPDATE SET name = users.name RETURNING id, leaving`, rand.Text(), name).Scan(&id, &beingDeleted)
	if err != nil {
		return "", err
	}
	if beingDeleted {
		return "", errBeingDeleted
	}
	session = rand.Text()
	_, err = u.db.ExecContext(ctx, `INSERT INTO sessions (secret_hash, user_id) VALUES (?, ?)`, hashOf(session), id)
	return session, err
}

// signedIn returns the user of a session. Error: errSignedOut.
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

// markForDeletion marks the account of a user for deletion, and ends all sessions of the user.
func (u *users) markForDeletion(ctx context.Context, id string) error {
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

// markedForDeletion returns the ids of up to 100 users whose accounts are marked for deletion.
func (u *users) markedForDeletion(ctx context.Context) (ids []string, err error) {
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
