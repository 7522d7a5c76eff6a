package chaos

import (
	"context"
	"fmt"
	"time"

	"tideline/e2e/worldtest"
)

// onTheWay bounds the time from the visibility check of an event to its arrival at a client,
// on a busy machine. If a server was stopped in between, the time of the stop is added.
const onTheWay = 10 * time.Second

// leaks describes the pages and events that showed a post that the viewer could not see at
// that time, even if every unfinished change is counted in the viewer's favour.
func (w *world) leaks() (lines []string, err error) {
	w.load.mu.Lock()
	seen := w.load.seen
	w.load.mu.Unlock()
	for _, p := range seen {
		for _, id := range p.posts {
			if !w.load.ledger.mightSee(p.viewer, id, p.home, p.began, p.ended) {
				lines = append(lines, fmt.Sprintf("LEAK: a page that user%d read at %s showed post %d %s", p.viewer-1, p.began.Format(clock), id, w.describe(id)))
			}
		}
	}
	told, err := w.crowd.Told()
	if err != nil {
		return nil, err
	}
	stops := w.stops()
	for i, events := range told {
		u := w.users[i%len(w.users)]
		for _, e := range events {
			id := worldtest.PostID(e.Post)
			if e.Kind == "added" && !w.load.ledger.mightSee(u.ID, id, true, decided(e.Time(), stops), e.Time()) {
				lines = append(lines, fmt.Sprintf("LEAK: the client %s was told of post %d at %s, +%.1f s %s", w.clientName(i), id,
					e.Time().Format(clock), e.Time().Sub(w.began).Seconds(), w.describe(id)))
			}
		}
	}
	return lines, nil
}

// decided returns the earliest time at which the visibility of an event that arrived at that
// time may have been checked.
func decided(arrived time.Time, stops []happening) time.Time {
	from := arrived.Add(-onTheWay)
	for _, h := range stops {
		if h.from.Before(arrived) && h.to.After(from) {
			from = h.from.Add(-onTheWay)
		}
	}
	return from
}

// stops returns the faults that froze a server.
func (w *world) stops() (list []happening) {
	for _, h := range w.faults.all() {
		if h.kind == "server stopped" {
			list = append(list, h)
		}
	}
	return list
}

// inSQL compares the accepted posts with the posts in SQL, and describes lost and doubled
// ones.
func (w *world) inSQL(ctx context.Context) (lines []string, err error) {
	tr, err := w.truth(ctx)
	if err != nil {
		return nil, err
	}
	texts := map[string][]int64{}
	for id, r := range tr.posts {
		if r.author <= int64(len(w.users)) { // not a prober: the probers repeat their texts
			texts[r.text] = append(texts[r.text], id)
		}
	}
	for text, ids := range texts {
		if text != "" && len(ids) > 1 { // a repost has no text
			lines = append(lines, fmt.Sprintf("DOUBLED: %q was posted once and is the posts %v", text, ids))
		}
	}
	w.load.mu.Lock()
	for id, p := range w.load.accepted {
		original := w.load.accepted[p.original] // with which a repost is deleted
		if _, stored := tr.posts[id]; !stored && !p.deleted && (original == nil || !original.deleted) {
			lines = append(lines, fmt.Sprintf("LOST IN SQL: post %d, accepted at %s", id, w.beside(p.at)))
		}
	}
	w.load.mu.Unlock()
	for _, p := range w.probers {
		p.mu.Lock()
		for id, probe := range p.posts {
			if _, stored := tr.posts[id]; !stored {
				lines = append(lines, fmt.Sprintf("LOST IN SQL: post %d of %s, accepted at %s", id, probe.by.Handle, w.beside(probe.at)))
			}
		}
		p.mu.Unlock()
	}
	return lines, nil
}

// deadJobs describes the jobs that the workers gave up.
func (w *world) deadJobs(ctx context.Context) (lines []string, err error) {
	rows, err := w.db.SQL.QueryContext(ctx, `SELECT id, kind, payload, attempts, last_error FROM jobs WHERE dead`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, attempts int64
		var kind, payload, last string
		if err := rows.Scan(&id, &kind, &payload, &attempts, &last); err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("DEAD JOB: %d %s %s after %d attempts: %s", id, kind, payload, attempts, last))
	}
	return lines, rows.Err()
}

// clientFaults describes clients that received a post twice, or whose subscription ended.
func (w *world) clientFaults() (lines []string, err error) {
	clients, err := w.crowd.Report()
	if err != nil {
		return nil, err
	}
	told, err := w.crowd.Told()
	if err != nil {
		return nil, err
	}
	resumed, invalidated := 0, 0
	for i, c := range clients {
		for _, id := range c.Twice {
			lines = append(lines, fmt.Sprintf("TWICE: the client %s was told again of a post that it held, of which it was told: %s %s",
				w.clientName(i), w.story(told[i], worldtest.PostID(id)), w.describe(worldtest.PostID(id))))
		}
		if len(c.Failed) > 0 {
			lines = append(lines, fmt.Sprintf("ENDED: the subscription of the client %s: %v", w.clientName(i), c.Failed))
		}
		resumed, invalidated = resumed+c.Resumed, invalidated+c.Invalidated
	}
	w.t.Logf("%d clients resumed %d times and were told to read again %d times", len(clients), resumed, invalidated)
	return lines, nil
}
