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

// A canary is a job that changes nothing. It takes the same path as a post and measures how long
// that takes. There are two kinds: canaries that end at a worker, and canaries that the worker
// passes on to a subscriber. The payload of the first kind has been a number in every release,
// because old and new workers read it from the same queue during an upgrade. A worker that does not
// know the second kind leaves it to others.

// canaryJob is the payload of a canary that goes to a subscriber.
type canaryJob struct {
	Sent int64 // Unix microseconds, by the clock of the sender
	To   int64 // the subscriber that the worker notifies; 0: none
}

// payload returns the value into which the payload of a job of this kind is decoded.
func (j *canaryJob) payload(kind string) any {
	if kind == job.Canary {
		return &j.Sent
	}
	return j
}

func (j canaryJob) age() time.Duration { return max(0, time.Since(time.UnixMicro(j.Sent))) }

// send enqueues the canary.
func (j canaryJob) send(ctx context.Context, db *ent.Client, q *queue.Queue) error {
	tx, err := db.Tx(ctx)
	if err != nil {
		return err
	}
	kind, payload := job.SubscriberCanary, any(j)
	if j.To == 0 {
		kind, payload = job.Canary, j.Sent
	}
	if err := q.Enqueue(ctx, tx, queue.Small, kind, payload); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// waitingCanaries returns the canaries that no worker has finished, oldest first.
//
// Cost: an index range of the waiting small jobs.
func waitingCanaries(ctx context.Context, db *ent.Client) ([]canaryJob, error) {
	found, err := db.Job.Query().Where(entjob.Dead(false), entjob.Pool(string(queue.Small)), entjob.KindIn(job.Canary, job.SubscriberCanary)).
		Order(entjob.ByCreatedAt()).Select(entjob.FieldKind, entjob.FieldPayload).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("find canaries: %w", err)
	}
	list := make([]canaryJob, len(found))
	for i, row := range found {
		if err := json.Unmarshal(row.Payload, list[i].payload(row.Kind)); err != nil {
			return nil, fmt.Errorf("read canary: %w", err)
		}
	}
	return list, nil
}

// watchCanary sends a canary to the workers and observes its age. If a canary is already waiting,
// it observes the age of that canary and sends none. If none is waiting and this process has
// finished none since the last call, it observes 0, so that an old measurement does not stay.
func (w *Workers) watchCanary(ctx context.Context) {
	list, err := waitingCanaries(ctx, w.DB)
	if err == nil && len(list) > 0 {
		w.ObserveCanary(list[0].age())
		return
	}
	if err == nil {
		if !w.canaryDone.Swap(false) {
			w.ObserveCanary(0)
		}
		err = canaryJob{Sent: time.Now().UnixMicro()}.send(ctx, w.DB, w.Queue)
	}
	if err != nil {
		w.Logger.WarnContext(ctx, "canary not sent", "error", err)
	}
}

// canaryArrived notifies the subscriber of the canary, through the same publisher as every event. A
// failed publication is not retried: the subscriber notices that nothing arrives.
func (w *Workers) canaryArrived(ctx context.Context, j *queue.Job) error {
	var c canaryJob
	if err := decode(j, c.payload(j.Kind), nil); err != nil {
		return err
	}
	w.canaryDone.Store(true)
	w.ObserveCanary(c.age())
	if c.To == 0 {
		return nil
	}
	if _, err := w.Publisher.Publish(ctx, live.Event{Kind: live.MarkerMoved, Post: c.Sent}, []int64{c.To}); err != nil {
		w.Logger.WarnContext(ctx, "canary not published", "error", err)
	}
	return nil
}

// Canary measures the whole path of a post from a server to a subscriber of that server: SQL, the
// queue, a worker, pub/sub and the hub. It has at most one canary waiting for a worker at a time.
// Each server runs one Canary. Fields without a default are required.
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
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
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
	list, err := waitingCanaries(ctx, r.DB)
	if err != nil {
		return err
	}
	for _, waits := range list {
		if waits.To == r.id {
			return nil
		}
	}
	return canaryJob{Sent: time.Now().UnixMicro(), To: r.id}.send(ctx, r.DB, r.Queue)
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
			r.Observe(canaryJob{Sent: event.Post}.age())
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
