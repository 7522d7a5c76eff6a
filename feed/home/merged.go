package home

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"tideline/ent"
	"tideline/ent/follow"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/timeline"
)

// mergedAuthors lists the authors whom readers merge. It caches the list for
// Policy.MergedListFor.
type mergedAuthors struct {
	db     *ent.Client
	tl     *timeline.Store
	log    *slog.Logger
	now    func() time.Time
	policy Policy

	reads   singleflight.Group // of the list, outside of the lock
	mu      sync.Mutex
	read    time.Time
	authors []int64
	listed  map[int64]time.Time // when each was last
}

// list returns all merged authors, at most maxMergedAuthors.
//
// Cost: none while the list is new; otherwise a query by index that all callers share.
func (m *mergedAuthors) list(ctx context.Context) ([]int64, error) {
	if authors, ok := m.known(); ok {
		return authors, nil
	}
	// Whoever gives up leaves the query to the others.
	read := m.reads.DoChan("", func() (any, error) {
		if authors, ok := m.known(); ok {
			return authors, nil
		}
		return m.readList(context.WithoutCancel(ctx))
	})
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("read authors to merge: %w", ctx.Err())
	case r := <-read:
		authors, _ := r.Val.([]int64)
		return authors, rows.Wrap("read authors to merge", r.Err)
	}
}

// known returns the list if it is new.
func (m *mergedAuthors) known() (authors []int64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.authors, m.now().Sub(m.read) <= m.policy.MergedListFor
}

func (m *mergedAuthors) readList(ctx context.Context) ([]int64, error) {
	now := m.now()
	// Each mode is named, for that is a range of an index: all others but PUSH are not.
	authors, err := m.db.User.Query().Limit(maxMergedAuthors).
		Where(user.FanOutModeIn(user.FanOutModePUSH_TO_PULL, user.FanOutModePULL, user.FanOutModePULL_TO_PUSH)).IDs(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read, m.authors = now, m.withRecentlyRemoved(authors, now)
	return m.authors, nil
}

// withRecentlyRemoved adds the authors who left the list a moment ago: readers
// found their last posts in the outbox, and these may still be on their way to
// inboxes.
func (m *mergedAuthors) withRecentlyRemoved(authors []int64, now time.Time) []int64 {
	if m.listed == nil {
		m.listed = map[int64]time.Time{}
	}
	for _, author := range authors {
		m.listed[author] = now
	}
	maps.DeleteFunc(m.listed, func(_ int64, at time.Time) bool { return now.Sub(at) > mergeAfterReturn })
	list := slices.Collect(maps.Keys(m.listed))
	return list[:min(len(list), maxMergedAuthors)]
}

// followees returns the authors whom the viewer's reads merge; listed is false when
// there are too many merged authors for a list.
func (m *mergedAuthors) followees(ctx context.Context, viewer int64) (authors []int64, listed bool, err error) {
	list, err := m.list(ctx)
	if err != nil {
		return nil, false, err
	}
	return m.among(ctx, viewer, list)
}

// among is followees for a given list of merged authors.
func (m *mergedAuthors) among(ctx context.Context, viewer int64, list []int64) (authors []int64, listed bool, err error) {
	if m.policy.PullAbove == AlwaysPull || len(list) == maxMergedAuthors {
		return nil, false, nil
	}
	if len(list) == 0 {
		return nil, true, nil
	}
	err = m.db.Follow.Query().Where(follow.FollowerID(viewer), rows.Among(follow.FieldFolloweeID, list)).
		Select(follow.FieldFolloweeID).Scan(ctx, &authors)
	return authors, true, rows.Wrap("read followees to merge", err)
}

// sources returns the authors of the viewer's timeline: the followees who are not
// muted, and the viewer. It costs one query of one row, because thousands of rows
// take longer to receive than to find.
func (m *mergedAuthors) sources(ctx context.Context, viewer int64) ([]int64, error) {
	found, err := m.db.QueryContext(ctx, "SELECT string_agg(CAST(id AS TEXT), ',') FROM ("+sourcesOf+") s", viewer)
	if err != nil {
		return nil, fmt.Errorf("read followees: %w", err)
	}
	defer found.Close()
	var list sql.NullString
	if found.Next() {
		err = found.Scan(&list)
	}
	if err = errors.Join(err, found.Err()); err != nil || !list.Valid {
		return nil, rows.Wrap("read followees", err)
	}
	var authors []int64
	for text := range strings.SplitSeq(list.String, ",") {
		author, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read followees: %w", err)
		}
		authors = append(authors, author)
	}
	return authors, nil
}

// sourcesOf is the query of sources; its only argument is the viewer.
const sourcesOf = `SELECT followee_id AS id FROM follows
  WHERE follower_id = $1 AND followee_id NOT IN (SELECT muted_id FROM mutes WHERE muter_id = $1)
  UNION ALL SELECT id FROM users WHERE id = $1`

// reaching returns those authors who may have a post among the first of the range,
// up to its limit. Above the id after, no other author has any.
func (m *mergedAuthors) reaching(ctx context.Context, authors []int64, r timeline.Range) (near []int64, after int64, err error) {
	latest, err := m.latestPosts(ctx, authors)
	if err != nil {
		return nil, 0, err
	}
	type head struct{ author, id int64 }
	heads := make([]head, 0, len(authors))
	above := 0 // how many also posted beyond the near end: which posts they have in the range is unknown
	for i, id := range latest {
		if id > r.After {
			heads = append(heads, head{authors[i], id})
		}
		if id >= r.Upper() {
			above++
		}
	}
	after = r.After
	if n := above + r.Limit; !r.Ascending && n < len(heads) {
		slices.SortFunc(heads, func(a, b head) int { return cmp.Compare(b.id, a.id) })
		heads = heads[:n]
		after = max(after, heads[n-1].id-1)
	}
	if len(heads) > maxOutboxes {
		return nil, 0, errTooManyOutboxes
	}
	for _, h := range heads {
		near = append(near, h.author)
	}
	return near, after, nil
}

// latestPosts returns the latest post id of each author. It reads those that Redis
// does not know from SQL, and stores them.
func (m *mergedAuthors) latestPosts(ctx context.Context, authors []int64) ([]int64, error) {
	known, err := m.tl.LatestPostIDs(ctx, authors)
	if err != nil {
		return nil, err
	}
	var unknown []int64
	for i, id := range known.IDs {
		if id < 0 {
			unknown = append(unknown, authors[i])
		}
	}
	if len(unknown) == 0 {
		return known.IDs, nil
	}
	read := make(map[int64]int64, len(unknown))
	for chunk := range slices.Chunk(unknown, 10_000) {
		var list []struct {
			ID         int64 `json:"id"`
			LastPostID int64 `json:"last_post_id"`
		}
		err := m.db.User.Query().Where(rows.Among(user.FieldID, chunk)).Select(user.FieldID, user.FieldLastPostID).Scan(ctx, &list)
		if err != nil {
			return nil, fmt.Errorf("read newest posts of authors: %w", err)
		}
		for _, row := range list {
			read[row.ID] = row.LastPostID
		}
	}
	for i, id := range known.IDs {
		if id < 0 {
			known.IDs[i] = read[authors[i]]
		}
	}
	if err := m.tl.StoreLatest(ctx, known, read); err != nil {
		m.log.WarnContext(ctx, "newest posts of authors not stored; asked again", "error", err)
	}
	return known.IDs, nil
}
