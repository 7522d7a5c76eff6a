package account

import (
	"context"
	"fmt"
	"sync"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"

	"tideline/ent"
	"tideline/ent/session"
	"tideline/feed/internal/rows"
)

// When thousands of sockets reconnect at once, each needs its session. Concurrent look-ups
// therefore share a statement. This is not a batch.Batcher: a caller stops waiting when its
// own request ends, even though the statement goes on for the others, and a few concurrent
// callers must not wait for each other.
const (
	// askAtOnce is how many statements look up sessions concurrently. While fewer are running, no
	// caller waits for another, and a statement that hangs does not block all callers.
	askAtOnce = 4
	// askedTogether is the most sessions that one statement looks up.
	askedTogether = 256
	// askLimit is the timeout of a statement. The statement goes on if its callers have given up.
	askLimit = 10 * time.Second
)

// askers holds the callers that wait for a statement. The zero value is empty.
type askers struct {
	mu      sync.Mutex
	asking  int // running statements
	waiting []asker
}

// asker waits for the session of a token. The answer is nil if no session is open.
type asker struct {
	token  tokenHash
	answer chan<- answer // buffered, for one answer
}

type answer struct {
	row *ent.Session
	err error
}

// ask returns the open session of a token, or nil if there is none. The statement that reads it
// begins after the call.
func (s *Sessions) ask(ctx context.Context, token tokenHash) (*ent.Session, error) {
	done := make(chan answer, 1)
	a := &s.askers
	a.mu.Lock()
	a.waiting = append(a.waiting, asker{token, done})
	begin := a.asking < askAtOnce
	if begin {
		a.asking++
	}
	a.mu.Unlock()
	if begin {
		go s.answerAll(context.WithoutCancel(ctx))
	}
	select {
	case found := <-done:
		return found.row, found.err
	case <-ctx.Done():
		return nil, fmt.Errorf("find session: %w", ctx.Err())
	}
}

// answerAll answers waiting callers until none is left.
func (s *Sessions) answerAll(ctx context.Context) {
	a := &s.askers
	for {
		a.mu.Lock()
		together := a.waiting[:min(len(a.waiting), askedTogether)]
		if a.waiting = a.waiting[len(together):]; len(a.waiting) == 0 {
			a.waiting = nil
		}
		if len(together) == 0 {
			a.asking--
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		s.answer(ctx, together)
	}
}

// answer looks up the sessions of a group of callers.
func (s *Sessions) answer(ctx context.Context, together []asker) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	tokens := make([][]byte, len(together))
	for i := range together {
		tokens[i] = together[i].token[:]
	}
	list, err := s.cfg.DB.Session.Query().Where(tokenAmong(tokens), session.ExpiresAtGT(s.now())).All(ctx)
	if err != nil {
		err = fmt.Errorf("find sessions: %w", err)
	}
	byToken := make(map[tokenHash]*ent.Session, len(list))
	for _, row := range list {
		byToken[tokenHash(row.TokenHash)] = row
	}
	for _, one := range together {
		one.answer <- answer{byToken[one.token], err}
	}
}

// tokenAmong matches the sessions of the tokens. On PostgreSQL the list is one parameter, as in
// rows.Among.
func tokenAmong(tokens [][]byte) func(*sql.Selector) {
	return func(q *sql.Selector) {
		if q.Dialect() != dialect.Postgres {
			session.TokenHashIn(tokens...)(q)
			return
		}
		q.Where(sql.P(func(b *sql.Builder) {
			b.Ident(q.C(session.FieldTokenHash)).WriteString(" ")
			rows.WriteIn(b, "bytea", tokens)
		}))
	}
}
