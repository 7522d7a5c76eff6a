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

// A canary is a job that changes nothing. It goes the way of a post, and says how long that
// takes now. It has a kind for those that end at a worker, and one for those that the worker
// passes on to a subscriber. The payload of the first has been a number in every release, for
// old workers and new ones read it from the same queue while processes are upgraded; a worker
// that does not know the second leaves it to others.

// canaryJob is the payload of a canary to a subscriber.
type canaryJob struct {
	Sent int64 // Unix microseconds, by the clock of the sender
	To   int64 // the subscriber whom the worker tells; 0: nobody
}

// payload is what to decode the payload of the kind into.
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

// waitingCanaries returns the canaries that no worker has finished, the oldest first.
//
// Cost: an index range of the small jobs that wait.
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

// watchCanary sends a canary to the workers, unless one waits already: then it tells how
// long that has waited. It tells 0 when none waits and this process has lately done none,
// for what it told last is of the past.
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

// canaryArrived tells the subscriber of the canary, by the way of every event. A failure
// there makes no second attempt: the subscriber notices that nothing comes.
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

// Canary measures the whole way of a post, from a server to one of its subscribers: SQL,
// the queue, a worker, pub/sub, the hub. It has one canary on that way at a time, however
// busy the queue is. Each server has a Canary. Fields without a default are required.
type Canary struct {
	DB    *ent.Client
	Queue *queue.Queue
	Hub   *live.Hub
	// Every is the time from one canary to the next. Defaults to 10 seconds.
	Every time.Duration
	// Observe is called with the time that a canary took, when it arrives. While none does,
	// it is called each Every with the time since the first one that did not.
	Observe func(time.Duration)
	// Logger defaults to discarding.
	Logger *slog.Logger
}

// sendTimeout bounds the sending of a canary. It does not depend on Every: a machine on
// which that is too short would never send one.
const sendTimeout = 10 * time.Second

// canaryReaders is the first id of the subscribers of canaries. It is no user's: ids have
// 53 bits.
const canaryReaders = 1<<62 + 1

// Run sends canaries until ctx ends. It never fails: what keeps a canary from being sent
// keeps it from arriving.
//
// Cost: each Every one query by index, a job, and an event to one subscriber.
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
	since time.Time          // when the first canary was due that has not arrived; zero when all have
}

// next sends a canary, unless one waits for a worker. The one before may have been lost on
// its way, as any event may.
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
	default: // it is awake
	}
}

// take takes what has come to the subscription.
func (r *canaryReader) take() {
	if r.sub == nil { // it could not begin
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
