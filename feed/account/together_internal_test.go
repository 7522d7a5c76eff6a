package account

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

// Concurrent look-ups share a statement, and each gets its own answer.
func TestSessionsAreLookedUpTogether(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, stores *storage.Stores) {
		ctx := t.Context()
		s := &Sessions{cfg: SessionsConfig{DB: stores.DB, Now: time.Now}}
		begin := func(name string, user int64, ends time.Time) tokenHash {
			token := hashOf(name)
			require.NoError(t, stores.DB.Session.Create().SetTokenHash(token[:]).SetUserID(user).SetExpiresAt(ends.UTC()).Exec(ctx))
			return token
		}
		const askers = askedTogether + 10
		tokens := []tokenHash{hashOf("unknown")}
		for user := int64(1); user < askers; user++ {
			require.NoError(t, stores.DB.User.Create().SetID(user).SetHandle(fmt.Sprint("user", user)).SetName("-").SetPasswordHash("-").Exec(ctx))
			tokens = append(tokens, begin(fmt.Sprint("token", user), user, time.Now().Add(time.Hour)))
		}
		expired := begin("expired", 1, time.Now().Add(-time.Hour))
		row, err := s.ask(ctx, expired)
		require.NoError(t, err)
		require.Nil(t, row)

		require.Eventually(t, func() bool {
			s.askers.mu.Lock()
			defer s.askers.mu.Unlock()
			if s.askers.asking > 0 {
				return false // the statement has ended, but not its goroutine
			}
			s.askers.asking = askAtOnce // as if that many statements were running
			return true
		}, time.Minute, time.Millisecond)
		gaveUp, giveUp := context.WithCancel(ctx)
		giveUp()
		_, err = s.ask(gaveUp, tokens[1])
		require.ErrorIs(t, err, context.Canceled)
		found := make([]int64, askers)
		var all sync.WaitGroup
		for i, token := range tokens {
			all.Go(func() {
				row, err := s.ask(ctx, token)
				if err == nil && row != nil {
					found[i] = row.UserID
				} else if err != nil || i > 0 {
					found[i] = -1
				}
			})
		}
		require.Eventually(t, func() bool {
			s.askers.mu.Lock()
			defer s.askers.mu.Unlock()
			return len(s.askers.waiting) == askers+1
		}, time.Minute, time.Millisecond)
		count := storagetest.CountQueries(stores)
		s.answerAll(ctx)
		all.Wait()
		require.Equal(t, 2, count(), "one for as many as share one, and one for the rest")
		for i, user := range found {
			require.Equal(t, int64(i), user)
		}
		require.Equal(t, askAtOnce-1, s.askers.asking)
		require.Empty(t, s.askers.waiting)
	})
}
