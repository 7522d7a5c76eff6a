package workers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"tideline/ent"
	entjob "tideline/ent/job"
	"tideline/feed/job"
	"tideline/live"
	"tideline/queue"
)

// canaryJob is the payload of a canary: a job that changes nothing, and whose worker notifies a subscriber.
type canaryJob struct {
	Sent int64 // Unix microseconds, by the clock of the sender
	To   int64 // the subscriber
}

// canaryArrived notifies the subscriber of the canary, through the same publisher as every event. A
// failed publication is not retried: the subscriber notices that nothing arrives.
func (w *Workers) canaryArrived(ctx context.Context, j *queue.Job) error {
	var c canaryJob
	if err := decode(j, &c, nil); err != nil {
		return err
	}
	if _, err := w.Publisher.Publish(ctx, live.Event{Kind: live.MarkerMoved, Post: c.Sent}, []int64{c.To}); err != nil {
		w.Logger.WarnContext(ctx, "canary not published", "error", err)
	}
	return nil
}

// Canary measures the whole path of a post from a server to a subscriber of that server: SQL, the
// queue, a worker, pub/sub and the hub. A canary takes the same path as a post and changes nothing. At
// most one waits for a worker at a time. Each server runs one Canary. Fields without a default are required.
//
// It is the only measurement that covers pub/sub and the hub. A canary that ends at a worker would add
// nothing: the age of the oldest job (queue.Stats) shows whether jobs wait in the queue.
type Canary struct {
	DB    *ent.Client
	Queue *queue.Queue
	Hub   *live.Hub
	// Every is the time between two canaries. Defaults to 10 seconds.
	Every time.Duration
	// Observe is called with the travel time of each canary that arrives. While canaries do not
	// arrive, it is called after each Every with the time since the first of them was due.
	Observe func(time.Duration)
	// Logger defaults to discarding.
	Logger *slog.Logger
}

// sendTimeout bounds the sending of a canary. It does not depend on Every, which may be too short
// for a slow machine to send one.
const sendTimeout = 10 * time.Second

// canaryReaders is the lowest subscriber id of a canary. No user has such an id: user ids have 53
// bits.
const canaryReaders = 1<<62 + 1

// Run sends canaries until ctx ends and then returns nil. A canary that cannot be sent does not
// arrive either, so Observe reports it.
//
// Cost: one indexed query, one job and one event to one subscriber in each Every.
func (c Canary) Run(ctx context.Context) error {
	c.Every = cmp.Or(c.Every, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	r := canaryReader{Canary: c, id: canaryReaders + rand.Int64N(1<<40), woken: make(chan struct{}, 1)}
	defer r.close()
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.woken:
			r.take()
		case <-tick.C:
			if err := r.next(ctx); err != nil && ctx.Err() == nil {
				c.Logger.WarnContext(ctx, "canary not sent", "error", err)
			}
		}
	}
}

// canaryReader is the subscriber of a Canary.
type canaryReader struct {
	Canary
	id    int64
	woken chan struct{}
	sub   *live.Subscription // nil without one
	since time.Time          // when the first canary that has not arrived was due; zero if all have arrived
}

// next sends a canary, unless one of its own is waiting for a worker. It does not wait for the
// arrival of the previous one, because any event may be lost.
func (r *canaryReader) next(ctx context.Context) error {
	if r.since.IsZero() {
		r.since = time.Now()
	} else {
		r.Observe(time.Since(r.since))
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	if r.sub == nil {
		var err error
		if r.sub, err = r.Hub.Subscribe(ctx, r.id, r.wake); err != nil {
			return err
		}
	}
	waits, err := r.waits(ctx)
	if err != nil || waits {
		return err
	}
	tx, err := r.DB.Tx(ctx)
	if err != nil {
		return err
	}
	if err := r.Queue.Enqueue(ctx, tx, queue.Small, job.Canary, canaryJob{Sent: time.Now().UnixMicro(), To: r.id}); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// waits reports whether no worker has finished the last canary.
//
// Cost: an index range of the waiting small jobs.
func (r *canaryReader) waits(ctx context.Context) (bool, error) {
	found, err := r.DB.Job.Query().Where(entjob.Dead(false), entjob.Pool(string(queue.Small)), entjob.Kind(job.Canary)).
		Select(entjob.FieldPayload).All(ctx)
	if err != nil {
		return false, fmt.Errorf("find canaries: %w", err)
	}
	for _, row := range found {
		var c canaryJob
		if err := json.Unmarshal(row.Payload, &c); err != nil {
			return false, fmt.Errorf("read canary: %w", err)
		}
		if c.To == r.id {
			return true, nil
		}
	}
	return false, nil
}

func (r *canaryReader) wake() {
	select {
	case r.woken <- struct{}{}:
	default: // already awake
	}
}

// take handles the events of the subscription.
func (r *canaryReader) take() {
	if r.sub == nil { // the subscription could not be opened
		return
	}
	ended := r.sub.Ended()
	for event, ok := r.sub.Take(); ok; event, ok = r.sub.Take() {
		if event.Kind == live.MarkerMoved {
			r.since = time.Time{}
			r.Observe(max(0, time.Since(time.UnixMicro(event.Post))))
		}
	}
	if ended {
		r.close()
	}
}

func (r *canaryReader) close() {
	if r.sub != nil {
		r.sub.Close()
		r.sub = nil
	}
}
