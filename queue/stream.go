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

// group is the consumer group of every stream: all processes share the work.
const group = "w"

// The keys of a pool share a hash tag: its scripts touch one slot of a cluster.
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

// entry is a job in the stream. An entry that the commit pushed has all fields. One that was
// pushed later has the id of the job alone: only the row knows the attempts and the state.
type entry struct {
	job     int64
	kind    string // "": the row must be read
	payload json.RawMessage
	at      int64  // when it was enqueued: Unix, in microseconds
	id      string // in the stream
}

// push adds those entries to the pool's stream that are not in it yet, and returns
// how many these are.
func (q *Queue) push(ctx context.Context, p Pool, entries ...entry) (added int, err error) {
	// A few at a time: while a script runs, Redis does nothing else.
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

// releaseAll takes the entries of jobs out of the stream, so that the jobs can be pushed
// again. A job whose heir's entry is there is in the stream still. One whose entries are gone
// already is in the stream by another one, or not at all: that stays as it is.
func (q *Queue) releaseAll(ctx context.Context, p Pool, batch []*freed) error {
	args := []any{group}
	for _, f := range batch {
		args = append(args, f.job, f.heir, len(f.entries))
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

// forget removes the consumers that have been silent for so long. Their processes
// are gone, for a live one reads twice a second, or paused: the next read makes the
// consumer anew. One with pending entries stays, because they would go with it.
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

// readNew waits for at most n new entries, for as long as block; below 0: not at all.
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

// claimIdle takes over up to n entries whose worker has given no sign of life for ClaimIdle.
func (q *Queue) claimIdle(ctx context.Context, p Pool, n int) ([]entry, error) {
	// One call looks at some of the pending entries only. The cursor leads to the
	// next; after the last it is "0-0" again.
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

// beat tells the other processes that these entries are being worked on.
func (q *Queue) beat(ctx context.Context, p Pool, ids []string) error {
	err := q.rdb.XClaimJustID(ctx, &redis.XClaimArgs{
		Stream: p.stream(), Group: group, Consumer: q.consumer, Messages: ids,
	}).Err()
	if err != nil {
		return fmt.Errorf("heartbeat of pool %s: %w", p, err)
	}
	return nil
}

// parse never fails: an entry that it cannot read gets the job id 0. No row has that
// id, so the entry is dropped like any whose row is gone.
func parse(m redis.XMessage) entry {
	text := func(field string) string { s, _ := m.Values[field].(string); return s }
	job, _ := strconv.ParseInt(text("id"), 10, 64)
	at, _ := strconv.ParseInt(text("at"), 10, 64)
	return entry{
		job: job, kind: text("kind"), payload: json.RawMessage(text("payload")),
		at: at, id: m.ID,
	}
}

// noGroup reports whether err is that of a stream that was wiped.
func noGroup(err error) bool { return err != nil && strings.Contains(err.Error(), "NOGROUP") }
