package timeline

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"tideline/internal/errs"
)

// Fences record which relations of an author changed lately. They are safe for concurrent use.
type Fences struct {
	scripts
	now func() time.Time
}

// Fence records for one hour that the relation between the viewer and the author changed. A fan-out
// that read its followers before can then check the viewer again. Fence also removes older fences.
// So the storage is bounded by the relations of one author that change within an hour, and the
// current fan-outs.
//
// Cost: one round trip, O(log fences).
func (f *Fences) Fence(ctx context.Context, author, viewer int64) error {
	return errs.Wrap(f.mark(ctx, author, formatID(viewer), false), "fence viewer %d and author %d", viewer, author)
}

// mark adds a member to the author's fences and removes expired fences.
func (f *Fences) mark(ctx context.Context, author int64, member string, watch bool) error {
	_, err := f.run(ctx, f.marking(author, member, watch))
	return err
}

// marking returns the script call of mark.
func (f *Fences) marking(author int64, member string, watch bool) call {
	now := f.now().Unix()
	return call{markScript, []string{Outbox(author).fences()},
		[]any{member, now, fencesBefore(now), int64((fenceLife + clockMargin).Seconds()), flag(watch)}}
}

// Watch starts to watch the author's fences for the fan-out of a job. If fences are lost from now
// on, also because an older Redis comes back, Fenced reports it.
//
// Cost: one round trip, O(log fences).
func (f *Fences) Watch(ctx context.Context, author, job int64) error {
	return errs.Wrap(f.mark(ctx, author, watch(job), true), "watch the fences of author %d", author)
}

// Unwatch ends a watch.
//
// Cost: as Watch.
func (f *Fences) Unwatch(ctx context.Context, author, job int64) error {
	_, err := f.run(ctx, call{unwatchScript, []string{Outbox(author).fences()}, []any{watch(job)}})
	return errs.Wrap(err, "watch the fences of author %d no more", author)
}

// watch returns the member for the watch of a job. The scripts append the incarnation.
func watch(job int64) string { return "w" + formatID(job) + ":" }

// Fenced returns the viewers that were fenced since the given time, to the second and within the
// last hour. If whole is false, there may be others: Redis has lost fences since Watch, or Watch
// was not called within the last hour.
//
// Cost: one round trip, O(fences returned).
func (f *Fences) Fenced(ctx context.Context, author, job int64, since time.Time) (viewers []int64, whole bool, err error) {
	first := max(since.Unix(), f.now().Add(-fenceLife).Unix())
	done, err := f.run(ctx, call{fencedScript, []string{Outbox(author).fences()}, []any{first, watch(job)}})
	if err != nil {
		return nil, false, errs.Wrap(err, "fences of author %d", author)
	}
	reply, err := done[0].Slice()
	if err != nil || len(reply) != 2 {
		return nil, false, errs.Wrap(cmp.Or(err, errors.New("redis answered something else")), "fences of author %d", author)
	}
	members, _ := reply[1].([]any)
	for _, m := range members {
		if text, _ := m.(string); strings.HasPrefix(text, "w") {
			continue
		}
		viewer, err := parseID(m)
		if err != nil {
			return nil, false, errs.Wrap(err, "fences of author %d", author)
		}
		viewers = append(viewers, viewer)
	}
	return viewers, reply[0] == int64(1), nil
}

// fencesBefore returns the score below which fences have expired.
func fencesBefore(now int64) string {
	return "(" + strconv.FormatInt(now-int64(fenceLife.Seconds()), 10)
}
