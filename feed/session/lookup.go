package session

import (
	"context"
	"fmt"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"

	"tideline/ent"
	"tideline/ent/session"
	"tideline/feed/internal/rows"
)

const (
	// lookupMost is the most sessions that one statement looks up. When thousands of sockets
	// connect again at once, each needs its session.
	lookupMost = 256
	// lookupTimeout bounds a statement. The statement goes on if its callers have given up.
	lookupTimeout = 10 * time.Second
)

// lookup is a caller that waits for the session of a hash. row is nil if no session is open.
type lookup struct {
	hash Hash
	row  *ent.Session
	err  error
}

// read returns the open session of a hash, or nil if there is none. The statement that reads it
// begins after the call, and is shared with concurrent calls. If ctx ends, read returns, and the
// statement goes on for the other callers.
func (s *Store) read(ctx context.Context, hash Hash) (*ent.Session, error) {
	done := make(chan *lookup, 1)
	go func() {
		l := &lookup{hash: hash}
		s.lookups.Do(l, lookupMost, func(batch []*lookup) { s.lookUp(context.WithoutCancel(ctx), batch) })
		done <- l
	}()
	select {
	case l := <-done:
		return l.row, l.err
	case <-ctx.Done():
		return nil, fmt.Errorf("find session: %w", ctx.Err())
	}
}

// lookUp reads the sessions of several callers with one statement.
func (s *Store) lookUp(ctx context.Context, batch []*lookup) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	hashes := rows.Map(batch, func(l *lookup) []byte { return l.hash[:] })
	list, err := s.cfg.DB.Session.Query().Where(hashAmong(hashes), session.ExpiresAtGT(s.now())).All(ctx)
	if err != nil {
		err = fmt.Errorf("find sessions: %w", err)
	}
	byHash := make(map[Hash]*ent.Session, len(list))
	for _, row := range list {
		byHash[Hash(row.TokenHash)] = row
	}
	for _, l := range batch {
		l.row, l.err = byHash[l.hash], err
	}
}

// hashAmong matches the sessions of the hashes. On PostgreSQL the list is one parameter, as in
// rows.Among.
func hashAmong(hashes [][]byte) func(*sql.Selector) {
	return func(q *sql.Selector) {
		if q.Dialect() != dialect.Postgres {
			session.TokenHashIn(hashes...)(q)
			return
		}
		q.Where(sql.P(func(b *sql.Builder) {
			b.Ident(q.C(session.FieldTokenHash)).WriteString(" ")
			rows.WriteIn(b, "bytea", hashes)
		}))
	}
}
