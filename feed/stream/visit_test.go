package stream_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed/stream"
)

// A stream resumes while Redis does not answer, and Redis loses the mark that the user is active, so nothing
// is pushed to the user. The stream visits again soon, and then tells the client to read again.
func TestStreamVisitsAgainWhenRedisDidNotAnswer(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.Stores.Redis.AddHook(outage{})
		ann, bob := w.pair()
		w.Post(bob, schema.Public)
		w.Drain()
		l := w.listen(ann, w.Top(ann))
		away := l
		away.ctx = context.WithValue(l.ctx, outage{}, true)
		require.IsType(w, &stream.Invalidated{}, away.next())
		require.NoError(w, w.Timelines.Own.ForgetUser(w.Ctx, ann.ID))
		post := w.Post(bob, schema.Public)
		w.Drain()
		require.IsType(w, &stream.Invalidated{}, l.next())
		require.Equal(w, post, l.added())
		require.Equal(w, w.Post(bob, schema.Public), l.added())
	})
}
