package timeline

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// ForgetUser deletes all data of a deleted user: feeds, fences, activity and the latest post. It
// leaves the record of changes that the user was told about, and the fences of others, which expire
// within two hours. The user's posts may be in other inboxes, which Forget makes Missing.
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
