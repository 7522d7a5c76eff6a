package timeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Of each author whom somebody asked about, Redis remembers an id that no id of
// the outbox is above: a reader of many outboxes finds by it the few that reach
// a page. The ids lie in one hash a shard of authors:
//
//	"123"   no post of the author is newer than 123 ("0": there is none)
//	"-123"  123 was added, but of what came before nobody knows
//	none    nobody knows
//
// A writer only ever raises what is there, and leaves a note of the second kind
// where nothing is, so that a reader who has read SQL before the writer's commit
// cannot store what it found as the newest. The field "e" tells one life of the
// hash from the next: what was read from SQL in one is not stored in another,
// which the writer may have missed. A hash nobody has asked does not exist, and
// writers do not begin one.

// newestLife is how long what is known of the authors of a shard is kept before
// it is learnt anew, whether it is in use or not.
const newestLife = outboxLife

const epochField = "e"

// newEpoch is a random text, so long that Redis keeps the hash as a table from the
// beginning: in the compact encoding each look-up goes through all that is there.
func newEpoch() string { return fmt.Sprintf("%080d", rand.Int64()) }

// LatestPosts is what Redis knows about the newest ids of authors.
type LatestPosts struct {
	// IDs has for each author an id that none in the outbox is above, 0 when there
	// is none at all, and -1 where it is not known.
	IDs []int64

	epochs [shards]string
}

// LatestPostIDs asks what is known of the authors' newest ids. What is not, the caller
// reads from SQL, after this call, and hands to Learn.
//
// Cost: one round trip of at most 16 HMGET for each 1,000 authors of a shard,
// O(authors); one more when a hash begins.
func (s *Store) LatestPostIDs(ctx context.Context, authors []int64) (LatestPosts, error) {
	n := LatestPosts{IDs: make([]int64, len(authors))}
	var at [shards][]int // position in authors
	for i, author := range authors {
		shard := shardOf(author)
		at[shard] = append(at[shard], i)
	}
	type reply struct {
		cmd *redis.SliceCmd
		at  []int
	}
	var replies []reply
	var epochs [shards]*redis.StringCmd
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for shard := range shards {
			if len(at[shard]) == 0 {
				continue
			}
			epochs[shard] = p.HGet(ctx, newestKey(shard), epochField)
			for chunk := range slices.Chunk(at[shard], batch) {
				fields := make([]string, len(chunk))
				for i, j := range chunk {
					fields[i] = formatID(authors[j])
				}
				replies = append(replies, reply{p.HMGet(ctx, newestKey(shard), fields...), chunk})
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return n, wrap(err, "newest of %d authors", len(authors))
	}
	for _, r := range replies {
		values, err := r.cmd.Result()
		if err != nil {
			return n, wrap(err, "newest of %d authors", len(authors))
		}
		for i, v := range values {
			id := int64(-1)
			if text, ok := v.(string); ok && !strings.HasPrefix(text, "-") {
				if id, err = parseID(text); err != nil {
					return n, wrap(err, "newest of %d authors", len(authors))
				}
			}
			n.IDs[r.at[i]] = id
		}
	}
	return n, s.epochsOf(ctx, &n, epochs)
}

// epochsOf takes over the epochs that were read, and begins the hashes that were
// missing.
func (s *Store) epochsOf(ctx context.Context, n *LatestPosts, epochs [shards]*redis.StringCmd) error {
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for shard, cmd := range epochs {
			if cmd == nil || cmd.Err() == nil {
				continue
			}
			key := newestKey(shard)
			p.HSetNX(ctx, key, epochField, newEpoch())
			p.PExpire(ctx, key, newestLife)
			epochs[shard] = p.HGet(ctx, key, epochField)
		}
		return nil
	})
	for shard, cmd := range epochs {
		if cmd != nil {
			n.epochs[shard] = cmd.Val()
		}
	}
	return wrap(err, "begin newest of authors")
}

// StoreLatest stores the newest ids of authors that were not known, as SQL had them
// after Newest was asked; 0 is of an author without posts. What has been added
// since is not lost, and nothing is stored where Redis has forgotten since.
//
// Cost: one round trip of at most 16 scripts for each 500 authors of a shard.
func (s *Store) StoreLatest(ctx context.Context, n LatestPosts, newest map[int64]int64) error {
	var args [shards][]any
	for author, id := range newest {
		shard := shardOf(author)
		args[shard] = append(args[shard], formatID(author), formatID(id))
	}
	var calls []call
	for shard := range shards {
		for chunk := range slices.Chunk(args[shard], batch) {
			calls = append(calls, call{storeLatestScript, []string{newestKey(shard)}, append([]any{n.epochs[shard]}, chunk...)})
		}
	}
	if len(calls) == 0 {
		return nil
	}
	_, err := s.run(ctx, calls...)
	return wrap(err, "learn newest of %d authors", len(newest))
}

// raising is the calls before one that adds ids to the feed: of an outbox they
// make known that it is about to have them. Were it the other way round, a page
// would show a post and the next would not; on a cluster, where the two are at the
// same time, it may for that moment.
func raising(k Key, ids []int64, add call) []call {
	if k.kind != outbox || len(ids) == 0 {
		return []call{add}
	}
	return []call{
		{raiseScript, []string{newestKey(shardOf(k.id))}, []any{formatID(k.id), formatID(slices.Max(ids))}}, add,
	}
}
