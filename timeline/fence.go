package timeline

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Fences remember whose relation to an author changed lately. They are safe for concurrent
// use.
type Fences struct {
	scripts
	now func() time.Time
}

// Fence remembers for one hour that the relation between the viewer and the author
// changed, so that a fan-out which read its followers before can look at the viewer
// again. It forgets what is older. So what is stored is bounded by the relations of
// one author that change within an hour, and the fan-outs under way.
//
// Cost: one round trip, O(log fences).
func (f *Fences) Fence(ctx context.Context, author, viewer int64) error {
	return wrap(f.mark(ctx, author, formatID(viewer), false), "fence viewer %d and author %d", viewer, author)
}

// mark adds a member to the author's fences, and removes those that are over.
func (f *Fences) mark(ctx context.Context, author int64, member string, watch bool) error {
	_, err := f.run(ctx, f.marking(author, member, watch))
	return err
}

// marking is the call of mark.
func (f *Fences) marking(author int64, member string, watch bool) call {
	now := f.now().Unix()
	return call{markScript, []string{Outbox(author).fences()},
		[]any{member, now, fencesBefore(now), int64((fenceLife + clockMargin).Seconds()), flag(watch)}}
}

// Watch begins to watch the author's fences for the fan-out of a job: if fences are
// lost from now on, also by a Redis that comes back older, Fenced says so.
//
// Cost: one round trip, O(log fences).
func (f *Fences) Watch(ctx context.Context, author, job int64) error {
	return wrap(f.mark(ctx, author, watch(job), true), "watch the fences of author %d", author)
}

// Unwatch ends what Watch began.
//
// Cost: as Watch.
func (f *Fences) Unwatch(ctx context.Context, author, job int64) error {
	_, err := f.run(ctx, call{unwatchScript, []string{Outbox(author).fences()}, []any{watch(job)}})
	return wrap(err, "watch the fences of author %d no more", author)
}

// watch is the member that stands for the watch of a job. The scripts append the
// incarnation.
func watch(job int64) string { return "w" + formatID(job) + ":" }

// Fenced returns the viewers that were fenced since then, to the second and within
// the last hour. If whole is false there may be others: Redis has lost fences since
// Watch, or Watch was not called within the last hour.
//
// Cost: one round trip, O(fences returned).
func (f *Fences) Fenced(ctx context.Context, author, job int64, since time.Time) (viewers []int64, whole bool, err error) {
	first := max(since.Unix(), f.now().Add(-fenceLife).Unix())
	done, err := f.run(ctx, call{fencedScript, []string{Outbox(author).fences()}, []any{first, watch(job)}})
	if err != nil {
		return nil, false, wrap(err, "fences of author %d", author)
	}
	reply, err := done[0].Slice()
	if err != nil || len(reply) != 2 {
		return nil, false, wrap(cmp.Or(err, errors.New("redis answered something else")), "fences of author %d", author)
	}
	members, _ := reply[1].([]any)
	for _, m := range members {
		if text, _ := m.(string); strings.HasPrefix(text, "w") {
			continue
		}
		viewer, err := parseID(m)
		if err != nil {
			return nil, false, wrap(err, "fences of author %d", author)
		}
		viewers = append(viewers, viewer)
	}
	return viewers, reply[0] == int64(1), nil
}

// fencesBefore is the score below which fences are over.
func fencesBefore(now int64) string {
	return "(" + strconv.FormatInt(now-int64(fenceLife.Seconds()), 10)
}
