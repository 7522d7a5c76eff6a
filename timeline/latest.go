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

// For each author that somebody asked about, Redis keeps an id that no id of the
// outbox is above. A reader of many outboxes finds by it the few that reach a page.
// The ids are in one hash per shard of authors:
//
//	"123"   no post of the author is newer than 123 ("0": there is none)
//	"-123"  123 was added, but what came before is not known
//	none    nothing is known
//
// A writer only raises what is there. Where nothing is, it leaves an entry of the
// second kind, so that a reader that has read SQL before the writer's commit cannot
// store an older id as the latest. The field "e" is the epoch of the hash: what was
// read from SQL in one epoch is not stored in another, which may lack a write. A
// hash that nobody has asked for does not exist, and writers do not begin one.

// latestLife is how long a hash is kept, in use or not, before its ids are read from
// SQL anew.
const latestLife = outboxLife

const epochField = "e"

// newEpoch returns a random text. It is so long that Redis keeps the hash as a table
// from the beginning: in the compact encoding each look-up goes through all fields.
func newEpoch() string { return fmt.Sprintf("%080d", rand.Int64()) }

// LatestPosts is what Redis knows about the latest posts of authors.
type LatestPosts struct {
	// IDs has for each author an id that none in the outbox is above: 0 when there
	// is none at all, -1 when it is not known.
	IDs []int64

	epochs [shards]string
}

// LatestPostIDs returns what is known about the latest posts of the authors. The
// caller reads what is not known from SQL, after this call, and passes it to
// StoreLatest.
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
			epochs[shard] = p.HGet(ctx, latestKey(shard), epochField)
			for chunk := range slices.Chunk(at[shard], batch) {
				fields := make([]string, len(chunk))
				for i, j := range chunk {
					fields[i] = formatID(authors[j])
				}
				replies = append(replies, reply{p.HMGet(ctx, latestKey(shard), fields...), chunk})
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return n, wrap(err, "latest posts of %d authors", len(authors))
	}
	for _, r := range replies {
		values, err := r.cmd.Result()
		if err != nil {
			return n, wrap(err, "latest posts of %d authors", len(authors))
		}
		for i, v := range values {
			id := int64(-1)
			if text, ok := v.(string); ok && !strings.HasPrefix(text, "-") {
				if id, err = parseID(text); err != nil {
					return n, wrap(err, "latest posts of %d authors", len(authors))
				}
			}
			n.IDs[r.at[i]] = id
		}
	}
	return n, s.epochsOf(ctx, &n, epochs)
}

// epochsOf sets the epochs that were read, and begins the hashes that were missing.
func (s *Store) epochsOf(ctx context.Context, n *LatestPosts, epochs [shards]*redis.StringCmd) error {
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for shard, cmd := range epochs {
			if cmd == nil || cmd.Err() == nil {
				continue
			}
			key := latestKey(shard)
			p.HSetNX(ctx, key, epochField, newEpoch())
			p.PExpire(ctx, key, latestLife)
			epochs[shard] = p.HGet(ctx, key, epochField)
		}
		return nil
	})
	for shard, cmd := range epochs {
		if cmd != nil {
			n.epochs[shard] = cmd.Val()
		}
	}
	return wrap(err, "begin latest posts of authors")
}

// StoreLatest stores the ids of latest posts that were not known, as SQL had them
// after the call of LatestPostIDs; 0 stands for an author without posts. It keeps
// what has been added since, and stores nothing in a hash that was lost since.
//
// Cost: one round trip of at most 16 scripts for each 500 authors of a shard.
func (s *Store) StoreLatest(ctx context.Context, n LatestPosts, ids map[int64]int64) error {
	var args [shards][]any
	for author, id := range ids {
		shard := shardOf(author)
		args[shard] = append(args[shard], formatID(author), formatID(id))
	}
	var calls []call
	for shard := range shards {
		for chunk := range slices.Chunk(args[shard], batch) {
			calls = append(calls, call{storeLatestScript, []string{latestKey(shard)}, append([]any{n.epochs[shard]}, chunk...)})
		}
	}
	if len(calls) == 0 {
		return nil
	}
	_, err := s.run(ctx, calls...)
	return wrap(err, "store latest posts of %d authors", len(ids))
}

// withLatestRaised returns the call that adds ids to a feed. For an outbox, the call
// that raises the author's latest id comes before it. In the other order, one page
// might show a post that the next does not. On a cluster the two calls run at the
// same time, and for that moment this may happen.
func withLatestRaised(k Key, ids []int64, add call) []call {
	if k.kind != outbox || len(ids) == 0 {
		return []call{add}
	}
	return []call{
		{raiseLatestScript, []string{latestKey(shardOf(k.id))}, []any{formatID(k.id), formatID(slices.Max(ids))}}, add,
	}
}
