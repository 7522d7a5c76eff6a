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

// When thousands of sockets come back at once, each has a session to be looked up, and a
// statement each is what that costs. So those who wait at the same time share one. This is
// not a together.Batcher: an asker leaves when its request ends, whoever asks for it, and
// few askers must not wait for one another.
const (
	// askAtOnce is how many statements look sessions up at a time. As long as fewer do,
	// nobody waits for others; and one that hangs does not hold up everybody.
	askAtOnce = 4
	// askedTogether is how many sessions one statement looks up.
	askedTogether = 256
	// askLimit bounds a statement, which goes on when its askers have given up.
	askLimit = 10 * time.Second
)

// askers are those who wait for a statement. The zero value has none.
type askers struct {
	mu      sync.Mutex
	asking  int // statements under way
	waiting []asker
}

// asker waits for the session of a token, nil when none is open.
type asker struct {
	token  tokenHash
	answer chan<- answer // has room for it
}

type answer struct {
	row *ent.Session
	err error
}

// ask returns the open session of a token, nil when there is none. The statement that
// finds it begins after the call.
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

// answerAll answers those who wait until nobody does.
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

// answer looks up the sessions of some.
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

// tokenAmong matches the sessions of the tokens. On PostgreSQL the list is one parameter: see
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
