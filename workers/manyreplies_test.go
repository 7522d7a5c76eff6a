package workers_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed/feedtest"
	"tideline/feed/job"
	"tideline/queue"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// While the clients of many replies are told that their root was narrowed, a post by somebody else reaches
// its follower.
func TestPostsArriveWhileTheRepliesOfARootAreTold(t *testing.T) {
	t.Parallel()
	const replies = 300
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var told atomic.Int64
		begun, arrived := make(chan struct{}), make(chan struct{})
		arrives := sync.OnceFunc(func() { close(arrived) })
		w := feedtest.Idle(t, s, feedtest.Options{Queue: queue.Config{Observe: func(r queue.Result) {
			assert.NoError(t, r.Err)
			switch r.Kind {
			case job.PostChanged:
				if told.Add(1) == 10 {
					close(begun)
				}
				if r.Pool == queue.Large && told.Load() >= 10 { // the large pool is busy until the post has arrived
					<-arrived
				}
			case job.PostCreated:
				arrives()
			}
		}}})
		u := w.Users(4)
		ann, bob, cat, dan := u[0], u[1], u[2], u[3]
		w.Follow(dan, cat)
		w.AwaitInbox(dan)
		root := w.History(ann, 1)[0]
		for range replies {
			id, err := w.IDs.Next()
			require.NoError(t, err)
			require.NoError(t, s.DB.Post.Create().SetID(id).SetAuthorID(bob.ID).SetText("reply").SetVisibility(schema.Public).
				SetParentID(root).SetRootID(root).SetParentAuthorID(ann.ID).Exec(w.Ctx))
		}
		stop := w.Work()
		w.Drain()
		_, err := w.Feed.SetVisibility(w.Ctx, ann, root, schema.Private)
		require.NoError(t, err)
		<-begun
		post := w.Post(cat, schema.Public)
		<-arrived
		require.Contains(t, w.Timeline(dan, 5), post)
		w.Drain()
		stop() // a job's row is gone before Observe is called
		require.GreaterOrEqual(t, told.Load(), int64(replies))
	})
}
