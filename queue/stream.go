package queue

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// group is the consumer group of every stream. All processes are members.
const group = "w"

// The keys of a pool share a hash tag, so its scripts touch one slot of a cluster.
func (p Pool) stream() string { return "q:{" + string(p) + "}:s" }
func (p Pool) known() string  { return "q:{" + string(p) + "}:known" }

var (
	//go:embed push.lua
	pushSource string
	pushScript = redis.NewScript(pushSource)

	//go:embed group.lua
	groupSource string
	groupScript = redis.NewScript(groupSource)

	//go:embed release.lua
	releaseSource string
	releaseScript = redis.NewScript(releaseSource)
)

// entry is a job in the stream. An entry that a commit pushed has all fields. An entry pushed later
// has only the id of the job, because the row has the current attempts and state.
type entry struct {
	job     int64
	kind    string // "": the row must be read
	payload json.RawMessage
	at      int64  // when it was enqueued: Unix, in microseconds
	id      string // of the stream entry
}

// push adds the entries whose jobs are not in the stream of the pool yet, and returns how many it
// added.
func (q *Queue) push(ctx context.Context, p Pool, entries ...entry) (added int, err error) {
	// In small parts: Redis does nothing else while a script runs.
	for part := range slices.Chunk(entries, 100) {
		args := make([]any, 0, 4*len(part))
		for _, e := range part {
			args = append(args, e.job, e.kind, []byte(e.payload), e.at)
		}
		n, err := pushScript.Run(ctx, q.rdb, []string{p.stream(), p.known()}, args...).Int()
		if err != nil {
			return added, fmt.Errorf("push to pool %s: %w", p, err)
		}
		added += n
	}
	return added, nil
}

// releaseAll removes the entries of jobs from the stream, so that the jobs can be pushed again. If
// the entry of a successor exists, the job stays known, because it is still in the stream. If the
// entries of a job are gone already, the job may be in the stream under another entry, so the known
// set stays as it is.
func (q *Queue) releaseAll(ctx context.Context, p Pool, batch []*freed) error {
	args := []any{group}
	for _, f := range batch {
		args = append(args, f.job, f.successor, len(f.entries))
		for _, e := range f.entries {
			args = append(args, e)
		}
	}
	if err := releaseScript.Run(ctx, q.rdb, []string{p.stream(), p.known()}, args...).Err(); err != nil {
		return fmt.Errorf("release %d jobs of pool %s: %w", len(batch), p, err)
	}
	return nil
}

// createGroup creates the stream and its group, unless they exist.
func (q *Queue) createGroup(ctx context.Context, p Pool) error {
	err := groupScript.Run(ctx, q.rdb, []string{p.stream(), p.known()}, group).Err()
	if err != nil && !strings.Contains(err.Error(), "BUSYGROUP") {
		return fmt.Errorf("create group of pool %s: %w", p, err)
	}
	return nil
}

// forget removes consumers that have been idle for the duration silent. A live process reads twice
// a second, so an idle consumer belongs to a dead process or a paused one; the next read of a
// paused process creates its consumer again. A consumer with pending entries stays, because
// removing it would remove them too.
func (q *Queue) forget(ctx context.Context, p Pool, silent time.Duration) error {
	consumers, err := q.rdb.XInfoConsumers(ctx, p.stream(), group).Result()
	if err != nil {
		return fmt.Errorf("list consumers of pool %s: %w", p, err)
	}
	for _, c := range consumers {
		if c.Pending > 0 || c.Idle < silent {
			continue
		}
		if err := q.rdb.XGroupDelConsumer(ctx, p.stream(), group, c.Name).Err(); err != nil {
			return fmt.Errorf("remove consumer of pool %s: %w", p, err)
		}
	}
	return nil
}

// readNew waits up to block for new entries, and returns at most n. If block is negative, it does
// not wait.
func (q *Queue) readNew(ctx context.Context, p Pool, n int, block time.Duration) ([]entry, error) {
	streams, err := q.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: group, Consumer: q.consumer, Streams: []string{p.stream(), ">"},
		Count: int64(n), Block: block,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read pool %s: %w", p, err)
	}
	var entries []entry
	for _, s := range streams {
		for _, m := range s.Messages {
			entries = append(entries, parse(m))
		}
	}
	return entries, nil
}

// claimIdle takes over up to n entries that have had no heartbeat for ClaimIdle.
func (q *Queue) claimIdle(ctx context.Context, p Pool, n int) ([]entry, error) {
	// Each call examines only some of the pending entries and returns a cursor to the next. After
	// the last entry the cursor is "0-0" again.
	for cursor := "0-0"; ; {
		msgs, next, err := q.rdb.XAutoClaim(ctx, &redis.XAutoClaimArgs{
			Stream: p.stream(), Group: group, Consumer: q.consumer,
			MinIdle: q.cfg.ClaimIdle, Start: cursor, Count: int64(n),
		}).Result()
		if err != nil {
			return nil, fmt.Errorf("claim in pool %s: %w", p, err)
		}
		if len(msgs) > 0 || next == "0-0" {
			entries := make([]entry, len(msgs))
			for i, m := range msgs {
				entries[i] = parse(m)
				entries[i].kind = "" // an attempt has begun: the row must be read
			}
			return entries, nil
		}
		cursor = next
	}
}

// beat renews the claims of this process to the entries.
func (q *Queue) beat(ctx context.Context, p Pool, ids []string) error {
	err := q.rdb.XClaimJustID(ctx, &redis.XClaimArgs{
		Stream: p.stream(), Group: group, Consumer: q.consumer, Messages: ids,
	}).Err()
	if err != nil {
		return fmt.Errorf("heartbeat of pool %s: %w", p, err)
	}
	return nil
}

// parse never fails. An entry that it cannot read gets the job id 0, which no row has, so the
// attempt ends like any attempt whose row is gone.
func parse(m redis.XMessage) entry {
	text := func(field string) string { s, _ := m.Values[field].(string); return s }
	job, _ := strconv.ParseInt(text("id"), 10, 64)
	at, _ := strconv.ParseInt(text("at"), 10, 64)
	return entry{
		job: job, kind: text("kind"), payload: json.RawMessage(text("payload")),
		at: at, id: m.ID,
	}
}

// noGroup reports whether err says that the stream or its consumer group does not exist.
func noGroup(err error) bool { return err != nil && strings.Contains(err.Error(), "NOGROUP") }
