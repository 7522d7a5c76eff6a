package session

import (
	"context"
	"fmt"
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
		s := &Store{cfg: Config{DB: stores.DB, Now: time.Now}}
		begin := func(name string, user int64, ends time.Time) Hash {
			hash := hashOf(name)
			require.NoError(t, stores.DB.Session.Create().SetTokenHash(hash[:]).SetUserID(user).SetExpiresAt(ends.UTC()).Exec(ctx))
			return hash
		}
		batch := []*lookup{{hash: hashOf("unknown")}}
		for user := int64(1); user < lookupMost; user++ {
			require.NoError(t, stores.DB.User.Create().SetID(user).SetHandle(fmt.Sprint("user", user)).SetName("-").SetPasswordHash("-").Exec(ctx))
			batch = append(batch, &lookup{hash: begin(fmt.Sprint("token", user), user, time.Now().Add(time.Hour))})
		}
		expired := begin("expired", 1, time.Now().Add(-time.Hour))
		row, err := s.read(ctx, expired)
		require.NoError(t, err)
		require.Nil(t, row)
		row, err = s.read(ctx, batch[1].hash)
		require.NoError(t, err)
		require.Equal(t, int64(1), row.UserID)

		count := storagetest.CountQueries(stores)
		s.lookUp(ctx, batch)
		require.Equal(t, 1, count())
		require.NoError(t, batch[0].err)
		require.Nil(t, batch[0].row)
		for user, l := range batch[1:] {
			require.NoError(t, l.err)
			require.Equal(t, int64(user+1), l.row.UserID)
		}
	})
}

// A caller whose context ends does not wait for a statement that hangs.
func TestCallerGivesUpALookUp(t *testing.T) {
	t.Parallel()
	s := &Store{cfg: Config{DB: storagetest.Embedded(t).DB, Now: time.Now}}
	began, hangs, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		s.lookups.Do(&lookup{}, 1, func([]*lookup) {
			close(began)
			<-hangs
		})
	}()
	<-began
	gaveUp, giveUp := context.WithCancel(t.Context())
	giveUp()
	_, err := s.read(gaveUp, Hash{})
	require.ErrorIs(t, err, context.Canceled)
	close(hangs)
	<-ended
}
