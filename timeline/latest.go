package timeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"tideline/internal/errs"
)

// For each author that a reader asked about, Redis keeps an upper bound of the ids in the outbox.
// With it, a reader of many outboxes finds the few that reach a page. The bounds are in one hash
// per shard of authors:
//
//	"123"   no post of the author is newer than 123 ("0": there is none)
//	"-123"  123 was added, but earlier posts are unknown
//	none    nothing is known
//
// A writer only raises an entry. If there is none, it leaves an entry of the second kind. So a
// reader that read SQL before the writer's commit cannot store an older id as the latest. The field
// "e" is the epoch of the hash. An id that was read from SQL in one epoch is not stored in another,
// which may lack a write. An epoch begins with its incarnation of Redis; in another incarnation the
// hash counts as lost. A hash that no reader has asked for does not exist, and writers do not
// create one.

// latestLife is how long a hash is kept, even if it is in use. Then its ids are read from SQL
// again.
const latestLife = outboxLife

// newEpoch returns a random text, the end of an epoch. It is long enough that Redis stores the hash
// as a table from the beginning. In the compact encoding each look-up would scan all fields.
func newEpoch() string { return fmt.Sprintf("%080d", rand.Int64()) }

// Latest gives access to the ids of authors' latest posts. It is safe for concurrent use.
type Latest struct{ scripts }

// LatestPosts is what Redis knows about the latest posts of authors.
type LatestPosts struct {
	// IDs has for each author an upper bound of the ids in the outbox: 0 if the author has no
	// posts, -1 if it is unknown.
	IDs []int64

	epochs [activeShards]string
}

// IDs returns what is known about the latest posts of the authors. The caller reads
// unknown ids from SQL, after this call, and passes them to Store.
//
// Cost: one round trip of at most 16 HMGET for each 1,000 authors of a shard, O(authors), and 16
// scripts.
func (l *Latest) IDs(ctx context.Context, authors []int64) (LatestPosts, error) {
	n := LatestPosts{IDs: make([]int64, len(authors))}
	var at [activeShards][]int // position in authors
	for i, author := range authors {
		shard := shardOf(author)
		at[shard] = append(at[shard], i)
	}
	type reply struct {
		shard int
		cmd   *redis.SliceCmd
		at    []int
	}
	var replies []reply
	var calls []call
	for shard := range activeShards {
		if len(at[shard]) > 0 {
			calls = append(calls, call{latestScript, []string{latestKey(shard)}, []any{newEpoch(), latestLife.Milliseconds()}})
		}
	}
	// The ids are read together with their epoch, and the valid epoch is read after them. In the
	// other order, Redis might be rolled back in between, to an epoch that was valid before.
	done, err := l.runBehind(ctx, func(p redis.Pipeliner) {
		for shard := range activeShards {
			for chunk := range slices.Chunk(at[shard], batch) {
				fields := make([]string, 1, 1+len(chunk))
				fields[0] = "e"
				for _, i := range chunk {
					fields = append(fields, formatID(authors[i]))
				}
				replies = append(replies, reply{shard, p.HMGet(ctx, latestKey(shard), fields...), chunk})
			}
		}
	}, calls...)
	if err != nil {
		return n, errs.Wrap(err, "latest posts of %d authors", len(authors))
	}
	for shard := range activeShards {
		if len(at[shard]) > 0 {
			if n.epochs[shard], err = done[0].Text(); err != nil {
				return n, errs.Wrap(err, "latest posts of %d authors", len(authors))
			}
			done = done[1:]
		}
	}
	for _, r := range replies {
		values := r.cmd.Val()
		good := len(values) > 0 && values[0] == n.epochs[r.shard]
		for i, j := range r.at {
			n.IDs[j] = -1
			if !good {
				continue
			}
			if text, ok := values[1+i].(string); ok && !strings.HasPrefix(text, "-") {
				if n.IDs[j], err = parseID(text); err != nil {
					return n, errs.Wrap(err, "latest posts of %d authors", len(authors))
				}
			}
		}
	}
	return n, nil
}

// Store stores the ids that IDs did not know, as read from SQL after that call; 0
// means that the author has no posts. It keeps ids that were added since, and stores nothing in a
// hash that was lost since.
//
// Cost: one round trip of at most 16 scripts for each 500 authors of a shard.
func (l *Latest) Store(ctx context.Context, n LatestPosts, ids map[int64]int64) error {
	var args [activeShards][]any
	for author, id := range ids {
		shard := shardOf(author)
		args[shard] = append(args[shard], formatID(author), formatID(id))
	}
	var calls []call
	for shard := range activeShards {
		for chunk := range slices.Chunk(args[shard], batch) {
			calls = append(calls, call{storeLatestScript, []string{latestKey(shard)}, append([]any{n.epochs[shard]}, chunk...)})
		}
	}
	if len(calls) == 0 {
		return nil
	}
	_, err := l.run(ctx, calls...)
	return errs.Wrap(err, "store latest posts of %d authors", len(ids))
}

// withLatestRaised returns the call that adds ids to a feed. For an outbox, a call that raises the
// author's latest id comes first. In the other order, one page might show a post that the next page
// does not. On a cluster the two calls run concurrently, so this may happen for a moment.
func withLatestRaised(k Key, ids []int64, add call) []call {
	if k.kind != outbox || len(ids) == 0 {
		return []call{add}
	}
	return []call{raiseLatest(k.id, slices.Max(ids)), add}
}

// raiseLatest returns the call that raises the author's latest id.
func raiseLatest(author, id int64) call {
	return call{raiseLatestScript, []string{latestKey(shardOf(author))}, []any{formatID(author), formatID(id)}}
}

// Raise raises the author's latest post id, unless a newer one is known. If its hash does not
// exist, nothing is stored, and readers use SQL.
//
// Cost: one round trip, O(1).
func (l *Latest) Raise(ctx context.Context, author, id int64) error {
	_, err := l.run(ctx, raiseLatest(author, id))
	return errs.Wrap(err, "raise the latest post of author %d", author)
}

// Forget deletes the latest post ids of all authors. Readers take them from SQL again.
//
// Cost: one round trip, O(authors who are known).
func (l *Latest) Forget(ctx context.Context) error {
	_, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for shard := range activeShards {
			p.Unlink(ctx, latestKey(shard))
		}
		return nil
	})
	return errs.Wrap(err, "forget the latest posts")
}
