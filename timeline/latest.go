package timeline

import (
	"context"
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
// read from SQL in one epoch is not stored in another, which may lack a write. An
// epoch begins with the incarnation of Redis that it belongs to; in another one the
// hash counts as lost. A hash that nobody has asked for does not exist, and writers do
// not begin one.

// latestLife is how long a hash is kept, in use or not, before its ids are read from
// SQL anew.
const latestLife = outboxLife

// newEpoch returns a random text, the end of an epoch. It is so long that Redis keeps
// the hash as a table from the beginning: in the compact encoding each look-up goes
// through all fields.
func newEpoch() string { return fmt.Sprintf("%080d", rand.Int64()) }

// Latest has the ids of authors' latest posts. It is safe for concurrent use.
type Latest struct{ scripts }

// LatestPosts is what Redis knows about the latest posts of authors.
type LatestPosts struct {
	// IDs has for each author an id that none in the outbox is above: 0 when there
	// is none at all, -1 when it is not known.
	IDs []int64

	epochs [activeShards]string
}

// LatestPostIDs returns what is known about the latest posts of the authors. The
// caller reads what is not known from SQL, after this call, and passes it to
// StoreLatest.
//
// Cost: one round trip of at most 16 HMGET for each 1,000 authors of a shard,
// O(authors), and 16 scripts.
func (l *Latest) LatestPostIDs(ctx context.Context, authors []int64) (LatestPosts, error) {
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
	// The ids come with the epoch that they are of. Which one is good is asked after that:
	// in the other order Redis might come back older in between, in the epoch that was
	// good before.
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
		return n, wrap(err, "latest posts of %d authors", len(authors))
	}
	for shard := range activeShards {
		if len(at[shard]) > 0 {
			if n.epochs[shard], err = done[0].Text(); err != nil {
				return n, wrap(err, "latest posts of %d authors", len(authors))
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
					return n, wrap(err, "latest posts of %d authors", len(authors))
				}
			}
		}
	}
	return n, nil
}

// StoreLatest stores the ids of latest posts that were not known, as SQL had them
// after the call of LatestPostIDs; 0 stands for an author without posts. It keeps
// what has been added since, and stores nothing in a hash that was lost since.
//
// Cost: one round trip of at most 16 scripts for each 500 authors of a shard.
func (l *Latest) StoreLatest(ctx context.Context, n LatestPosts, ids map[int64]int64) error {
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
	return []call{raiseLatest(k.id, slices.Max(ids)), add}
}

// raiseLatest is the call that raises the author's latest id.
func raiseLatest(author, id int64) call {
	return call{raiseLatestScript, []string{latestKey(shardOf(author))}, []any{formatID(author), formatID(id)}}
}

// RaiseLatest raises what is known of the author's latest post to the id, unless a newer
// one is known. Where nothing is known of any author, it stays so: SQL is read.
//
// Cost: one round trip, O(1).
func (l *Latest) RaiseLatest(ctx context.Context, author, id int64) error {
	_, err := l.run(ctx, raiseLatest(author, id))
	return wrap(err, "raise the latest post of author %d", author)
}

// ForgetLatest forgets what is known about the latest posts of all authors. It is read from
// SQL again.
//
// Cost: one round trip, O(authors who are known).
func (l *Latest) ForgetLatest(ctx context.Context) error {
	_, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for shard := range activeShards {
			p.Unlink(ctx, latestKey(shard))
		}
		return nil
	})
	return wrap(err, "forget the latest posts")
}
