package timeline

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// ForgetUser deletes everything of a user who is gone: feeds, fences, activity, and the
// latest post. What says that the user was told of a change is left, and so are the fences of
// others: they end within two hours by themselves. The user's posts may be in the inboxes of
// others, see Forget.
//
// Cost: one round trip, O(size).
func (s *Store) ForgetUser(ctx context.Context, user int64) error {
	inbox, outbox, shard := Inbox(user), Outbox(user), shardOf(user)
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZRem(ctx, activeKey(shard), user)
		p.HDel(ctx, latestKey(shard), formatID(user))
		p.Del(ctx, inbox.keys()...)
		p.Del(ctx, append(outbox.keys(), outbox.fences())...)
		return nil
	})
	return wrap(err, "forget user %d", user)
}
