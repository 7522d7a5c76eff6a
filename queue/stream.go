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

	"tideline/internal/redisclient"
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

// stream is the Redis stream of one pool. It is safe for concurrent use.
type stream struct {
	rdb      redisclient.Client
	pool     Pool
	consumer string // names this process in the consumer group
}

// streamOf returns the stream of a pool.
func (q *Queue) streamOf(p Pool) stream { return stream{q.rdb, p, q.consumer} }

// entry is a job in the stream. An entry that a commit pushed has all fields. An entry pushed later
// has only the id of the job, because the row has the current attempts and state.
type entry struct {
	job     int64
	kind    string // "": the row must be read
	payload json.RawMessage
	at      int64  // when it was enqueued: Unix, in microseconds
	id      string // of the stream entry
}

// push adds the entries whose jobs are not in the stream yet, and returns how many it added.
func (s stream) push(ctx context.Context, entries ...entry) (added int, err error) {
	// In small parts: Redis does nothing else while a script runs.
	for part := range slices.Chunk(entries, 100) {
		args := make([]any, 0, 4*len(part))
		for _, e := range part {
			args = append(args, e.job, e.kind, []byte(e.payload), e.at)
		}
		n, err := pushScript.Run(ctx, s.rdb, []string{s.pool.stream(), s.pool.known()}, args...).Int()
		if err != nil {
			return added, fmt.Errorf("push to pool %s: %w", s.pool, err)
		}
		added += n
	}
	return added, nil
}

// release removes the entries of jobs from the stream, so that the jobs can be pushed again. If
// the entry of a successor exists, the job stays known, because it is still in the stream. If the
// entries of a job are gone already, the job may be in the stream under another entry, so the known
// set stays as it is.
func (s stream) release(ctx context.Context, batch []*freed) error {
	args := []any{group}
	for _, f := range batch {
		args = append(args, f.job, f.successor, len(f.entries))
		for _, e := range f.entries {
			args = append(args, e)
		}
	}
	if err := releaseScript.Run(ctx, s.rdb, []string{s.pool.stream(), s.pool.known()}, args...).Err(); err != nil {
		return fmt.Errorf("release %d jobs of pool %s: %w", len(batch), s.pool, err)
	}
	return nil
}

// create creates the stream and its group, unless they exist.
func (s stream) create(ctx context.Context) error {
	err := groupScript.Run(ctx, s.rdb, []string{s.pool.stream(), s.pool.known()}, group).Err()
	if err != nil && !strings.Contains(err.Error(), "BUSYGROUP") {
		return fmt.Errorf("create group of pool %s: %w", s.pool, err)
	}
	return nil
}

// forget removes consumers that have been idle for the duration silent. A live process reads twice
// a second, so an idle consumer belongs to a dead process or a paused one; the next read of a
// paused process creates its consumer again. A consumer with pending entries stays, because
// removing it would remove them too.
func (s stream) forget(ctx context.Context, silent time.Duration) error {
	consumers, err := s.rdb.XInfoConsumers(ctx, s.pool.stream(), group).Result()
	if err != nil {
		return fmt.Errorf("list consumers of pool %s: %w", s.pool, err)
	}
	for _, c := range consumers {
		if c.Pending > 0 || c.Idle < silent {
			continue
		}
		if err := s.rdb.XGroupDelConsumer(ctx, s.pool.stream(), group, c.Name).Err(); err != nil {
			return fmt.Errorf("remove consumer of pool %s: %w", s.pool, err)
		}
	}
	return nil
}

// readNew waits up to block for new entries, and returns at most n. If block is negative, it does
// not wait.
func (s stream) readNew(ctx context.Context, n int, block time.Duration) ([]entry, error) {
	streams, err := s.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: group, Consumer: s.consumer, Streams: []string{s.pool.stream(), ">"},
		Count: int64(n), Block: block,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read pool %s: %w", s.pool, err)
	}
	var entries []entry
	for _, found := range streams {
		for _, m := range found.Messages {
			entries = append(entries, parse(m))
		}
	}
	return entries, nil
}

// claimIdle takes over up to n entries that have had no heartbeat for the duration idle.
func (s stream) claimIdle(ctx context.Context, idle time.Duration, n int) ([]entry, error) {
	// Each call examines only some of the pending entries and returns a cursor to the next. After
	// the last entry the cursor is "0-0" again.
	for cursor := "0-0"; ; {
		msgs, next, err := s.rdb.XAutoClaim(ctx, &redis.XAutoClaimArgs{
			Stream: s.pool.stream(), Group: group, Consumer: s.consumer,
			MinIdle: idle, Start: cursor, Count: int64(n),
		}).Result()
		if err != nil {
			return nil, fmt.Errorf("claim in pool %s: %w", s.pool, err)
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
func (s stream) beat(ctx context.Context, ids []string) error {
	err := s.rdb.XClaimJustID(ctx, &redis.XClaimArgs{
		Stream: s.pool.stream(), Group: group, Consumer: s.consumer, Messages: ids,
	}).Err()
	if err != nil {
		return fmt.Errorf("heartbeat of pool %s: %w", s.pool, err)
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
