package oracle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"tideline/feed/home"
	"tideline/feed/job"
	"tideline/internal/redisclient"
	"tideline/queue"
	"tideline/timeline"
)

// mishap injects a fault.
func (r *run) mishap(s step, a, p int) error {
	switch s.do {
	case "hold", "stall":
		if after := s.n % 6; r.gate.arm(after, s.do == "stall") {
			r.say("a worker will %s at inbox access %d from now", map[string]string{"hold": "stop", "stall": "hang"}[s.do], after)
		}
	case "release":
		r.say("workers go on")
		r.gate.release()
	case "pause":
		r.say("workers take no more jobs")
		r.gate.paused.Store(true)
	case "resume":
		r.say("workers take jobs again")
		r.gate.paused.Store(false)
	case "kill":
		i := s.n % len(r.lives)
		r.say("worker %d is killed", i)
		r.lives[i].kill()
		r.lives[i] = r.start()
	case "repeat":
		return r.repeat(s, a, p)
	case "wipe":
		r.say("Redis is wiped")
		return wipe(r.ctx, r.s.Redis)
	case "snapshot":
		return r.snapshot()
	case "roll back":
		return r.rollBack(s.n)
	case "lose":
		return r.lose(s.n, a)
	case "dead builder":
		r.say("a builder of %s's inbox dies", r.name(a))
		_, _, err := r.tl.Feeds.Begin(r.ctx, timeline.Inbox(r.users[a].id))
		return err
	case "balance":
		i := s.n % len(thresholds)
		r.say("authors are balanced, push up to %d", thresholds[i])
		if s.b%3 > 0 {
			if err := r.jump(31 * time.Second); err != nil {
				return err
			}
		}
		return r.rebalance(r.balance[i])
	case "wait":
		return r.jump([]time.Duration{3 * time.Second, 11 * time.Second, 40 * time.Second}[s.n%3])
	case "away":
		// A fence lasts for an hour, so no worker may be at work that long.
		if err := r.settle(); err != nil {
			return err
		}
		for _, c := range r.clients {
			c.cut()
		}
		for _, c := range r.talks {
			c.cut()
		}
		return r.jump(80 * time.Hour)
	case "settle":
		r.say("all work is done")
		return r.settle()
	case "walk":
		if r.users[a].hidden {
			return nil
		}
		return r.stroll(a, s.n)
	default:
		return r.onClient(s, a, p)
	}
	return nil
}

// onClient executes the steps of clients and of their serving processes.
func (r *run) onClient(s step, a, p int) error {
	switch s.do {
	case "open conversation":
		if p < 0 {
			return nil
		}
		return r.openTalk(a, p)
	case "cut conversation":
		c := r.talks[a]
		if c == nil || c.at == nil || r.users[a].hidden {
			return nil
		}
		most := s.n % 3
		r.say("%s takes up to %d events of the conversation of #%d, and the connection breaks", r.name(a), most, c.root)
		err := r.takeTalk(c, most)
		c.cut()
		return err
	case "subscribe":
		if r.users[a].hidden {
			return nil
		}
		return r.subscribe(a)
	case "events", "cut":
		c := r.clients[a]
		if c == nil || c.at == nil {
			return nil
		}
		if s.do == "events" {
			return r.take(c, 1000)
		}
		most := s.n % 3
		r.say("%s takes up to %d events, and the connection breaks", r.name(a), most)
		err := r.take(c, most)
		c.cut()
		return err
	case "cut off":
		r.leave()
	case "back":
		if r.comeBack() {
			r.say("all processes hear from Redis")
		}
	case "pass":
		return r.pass([]time.Duration{100 * time.Second, 150 * time.Second, 5 * time.Minute, 15 * time.Minute, 3 * time.Hour}[s.n%5])
	}
	return nil
}

// pass advances the clock by more than a step of a job may take. No attempt is in the middle of a
// step then, unless its process has stalled.
func (r *run) pass(d time.Duration) error {
	if r.gate.caught(false) > 0 {
		r.say("workers go on")
		r.gate.release()
	}
	working := func(l *life) bool { return l.busy() && !l.stalled.Load() }
	for begun := time.Now(); r.gate.paused.Load() && slices.ContainsFunc(r.lives[:], working); time.Sleep(time.Millisecond) {
		if time.Since(begun) > patience {
			return errors.New("what was begun does not come to an end")
		}
	}
	if !r.gate.paused.Load() {
		if err := r.rest(); err != nil {
			return err
		}
	}
	return r.jump(d)
}

// jump advances the clock.
func (r *run) jump(d time.Duration) error {
	r.say("%s pass", d)
	return r.advance(d)
}

// repeat enqueues a job that was done before, or that belongs to no change.
func (r *run) repeat(s step, a, p int) error {
	kind, payload := job.RelationChanged, any(job.Relation{Users: [2]int64{r.users[a].id, r.viewer(r.readers[s.b%len(r.readers)]).ID}})
	switch {
	case s.n%4 == 1:
		kind, payload = job.AuthorReturns, job.Author{Author: r.users[a].id}
	case s.n%16 == 15 && p >= 0:
		kind, payload = job.BaseChanged, job.Post{Post: r.posts[p].id, Author: r.users[r.posts[p].author].id}
	case s.n%4 > 1 && p >= 0:
		kind = []string{job.PostCreated, job.PostChanged}[s.n%2]
		payload = job.Post{Post: r.posts[p].id, Author: r.users[r.posts[p].author].id}
	case a == r.readers[s.b%len(r.readers)]:
		return nil
	}
	r.say("the job %s is done once more: %+v", kind, r.worded(payload))
	tx, err := r.db.Tx(r.ctx)
	if err != nil {
		return err
	}
	if err := r.queue.Enqueue(r.ctx, tx, queue.Small, kind, payload); err != nil {
		return err
	}
	return tx.Commit()
}

func (r *run) worded(payload any) string {
	user := func(id int64) string {
		for i, u := range r.users {
			if u.id == id {
				return r.name(i)
			}
		}
		return "?"
	}
	switch j := payload.(type) {
	case job.Relation:
		return user(j.Users[0]) + " and " + user(j.Users[1])
	case job.Author:
		return user(j.Author)
	case job.Post:
		return fmt.Sprintf("#%d by %s", r.numbers[j.Post], user(j.Author))
	}
	return ""
}

// lose deletes a key of Redis.
func (r *run) lose(n, a int) error {
	inbox, outbox := timeline.Inbox(r.users[a].id), timeline.Outbox(r.users[a].id)
	if n%7 >= 5 {
		what := map[int]string{5: "who is active", 6: "whose posts are the newest"}[n%7]
		r.say("Redis forgets %s", what)
		r.deafen()
		for shard := range 16 {
			if err := r.s.Redis.Del(r.ctx, fmt.Sprintf("tl:{%s%d}", map[int]string{5: "a", 6: "n"}[n%7], shard)).Err(); err != nil {
				return err
			}
		}
		return nil
	}
	key := []string{inbox.String() + ":z", inbox.String() + ":m", outbox.String() + ":z", outbox.String() + ":m", inbox.String() + ":m"}[n%7]
	r.say("Redis loses %s of %s", map[string]string{
		inbox.String() + ":z": "the entries of the inbox", inbox.String() + ":m": "the coverage of the inbox",
		outbox.String() + ":z": "the entries of the outbox", outbox.String() + ":m": "the coverage of the outbox",
	}[key], r.name(a))
	return r.s.Redis.Del(r.ctx, key).Err()
}

func wipe(ctx context.Context, rdb redisclient.Client) error {
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() })
	}
	return rdb.FlushAll(ctx).Err()
}

// rebalance moves all authors with a threshold that differs from the one of the fan-outs.
func (r *run) rebalance(h *home.Home) error {
	if err := h.FanOutModes.Rebalance(r.ctx); err != nil {
		return err
	}
	authors, err := r.s.DB.User.Query().All(r.ctx)
	if err != nil {
		return err
	}
	for _, author := range authors {
		if err := h.FanOutModes.CrossThreshold(r.ctx, author); err != nil {
			return err
		}
	}
	return nil
}
