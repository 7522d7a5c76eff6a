package home

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"entgo.io/ent/dialect/sql"

	"tideline/ent"
	"tideline/ent/follow"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/visibility"
	"tideline/internal/batch"
	"tideline/internal/errs"
	"tideline/timeline"
)

// mergedAuthors lists the authors whose outboxes readers merge. It caches the list for
// Policy.MergedListFor. If there are maxMergedAuthors or more, each reader asks SQL for the merged
// authors among the followees instead.
type mergedAuthors struct {
	db     *ent.Client
	latest *timeline.Latest
	log    *slog.Logger
	now    func() time.Time
	policy Policy

	shared batch.Shared[mergedList]
	listed map[int64]time.Time // when each author was last in the list; only readList uses it
}

type mergedList struct {
	read    time.Time
	authors []int64
}

// listTimeout bounds the query for the merged authors.
const listTimeout = 10 * time.Second

// list returns all merged authors, at most maxMergedAuthors. Callers share one query by index,
// which goes on for the others if one of them gives up.
func (m *mergedAuthors) list(ctx context.Context) ([]int64, error) {
	fresh := func(l mergedList) bool { return m.now().Sub(l.read) <= m.policy.MergedListFor }
	l, err := m.shared.Get(ctx, fresh, m.readList)
	return l.authors, errs.Wrap(err, "read authors to merge")
}

func (m *mergedAuthors) readList(ctx context.Context) (mergedList, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	began := m.now()
	authors, err := m.db.User.Query().Where(modesMerged).Limit(maxMergedAuthors).IDs(ctx)
	if err != nil {
		return mergedList{}, err
	}
	return mergedList{began, m.withRecentlyRemoved(authors, began)}, nil
}

// modesMerged selects all modes except PUSH. It names each, because "not PUSH" is no range of an
// index.
var modesMerged = user.FanOutModeIn(user.FanOutModePUSH_TO_PULL, user.FanOutModePULL, user.FanOutModePULL_TO_PUSH)

// withRecentlyRemoved adds the authors who left the list a moment ago. Readers found their last
// posts in the outbox, and these posts may still be in flight to inboxes.
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

// mergeable returns a list of authors, cached or read now, that contains all merged followees of
// the viewers. A viewer who follows no author in the list merges none.
//
// Cost: a query if the list is older than Policy.MergedListFor. If the list is full, a look-up by
// key for each followee.
func (m *mergedAuthors) mergeable(ctx context.Context, viewers ...int64) ([]int64, error) {
	list, err := m.list(ctx)
	if err != nil || len(list) < maxMergedAuthors || m.policy.PullAbove == AlwaysPull {
		return list, err
	}
	list = nil
	err = m.db.Follow.Query().Where(rows.Among(follow.FieldFollowerID, viewers), func(s *sql.Selector) {
		s.Where(sql.P(func(b *sql.Builder) { // a scalar, so that no plan reads all users
			b.WriteString("(SELECT fan_out_mode <> 'PUSH' OR fan_out_mode_since > ").Arg(m.leftAfter()).
				WriteString(" FROM users WHERE users.id = ").Ident(s.C(follow.FieldFolloweeID)).WriteString(")")
		}))
	}).Unique(true).Select(follow.FieldFolloweeID).Scan(ctx, &list)
	return list, errs.Wrap(err, "read followees to merge")
}

// leftAfter returns a time in Unix milliseconds: readers still merge an author who returned to
// PUSH after it. It allows for clocks of processes that differ by some seconds.
func (m *mergedAuthors) leftAfter() int64 { return m.now().Add(-2 * mergeAfterReturn).UnixMilli() }

// MergedFollowees returns the authors whose outboxes the viewer's reads merge. If no author's posts
// are pushed, listed is false and authors is nil: reads then merge the outboxes of the viewer and of
// all followees except muted ones.
//
// Cost: a query by index, and another if the list is older than Policy.MergedListFor. If the list is
// full, one more, with a look-up by key for each followee.
func (rd *Reader) MergedFollowees(ctx context.Context, viewer int64) (authors []int64, listed bool, err error) {
	list, err := rd.merged.mergeable(ctx, viewer)
	if err != nil {
		return nil, false, err
	}
	return rd.merged.among(ctx, viewer, list)
}

// among is MergedFollowees for a list that mergeable returned.
func (m *mergedAuthors) among(ctx context.Context, viewer int64, list []int64) (authors []int64, listed bool, err error) {
	if m.policy.PullAbove == AlwaysPull {
		return nil, false, nil
	}
	if len(list) == 0 {
		return nil, true, nil
	}
	err = m.db.Follow.Query().Where(follow.FollowerID(viewer), rows.Among(follow.FieldFolloweeID, list)).
		Select(follow.FieldFolloweeID).Scan(ctx, &authors)
	return authors, true, errs.Wrap(err, "read followees to merge")
}

// mayMerge reports whether reads of the author's followers merge the author's outbox. If so, the
// author's newest posts may be in no inbox.
func (m *mergedAuthors) mayMerge(ctx context.Context, author int64) (bool, error) {
	list, err := m.list(ctx)
	if err != nil || len(list) < maxMergedAuthors || m.policy.PullAbove == AlwaysPull {
		return m.policy.PullAbove == AlwaysPull || slices.Contains(list, author), err
	}
	return m.db.User.Query().Where(user.ID(author), user.Or(modesMerged, user.FanOutModeSinceGT(m.leftAfter()))).Exist(ctx)
}

// sources returns the authors of the viewer's timeline: the viewer, and all followees except
// muted ones.
func (m *mergedAuthors) sources(ctx context.Context, viewer int64) ([]int64, error) {
	authors, err := rows.IDs(ctx, m.db, visibility.SourcesOf(), viewer)
	return authors, errs.Wrap(err, "read followees")
}

// reaching returns the authors who may have a post among the first posts of the range, up to its
// limit. No other author has a post in the range above the id after.
//
// Authors without a post above r.After are left out. In a descending range, more are left out: the
// Limit newest of the latest posts in the range would fill the page, so authors whose latest posts are
// older are not needed. Authors whose latest post is above the range are all kept, because it is not
// known where in the range they have posts.
func (m *mergedAuthors) reaching(ctx context.Context, authors []int64, r timeline.Range) (near []int64, after int64, err error) {
	latest, err := m.latestPosts(ctx, authors)
	if err != nil {
		return nil, 0, err
	}
	type head struct{ author, id int64 }
	heads := make([]head, 0, len(authors))
	above := 0 // number of authors whose latest post is above the range
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

// latestPosts returns the latest post id of each author. It reads from SQL the ids that Redis
// does not have, and stores them in Redis.
func (m *mergedAuthors) latestPosts(ctx context.Context, authors []int64) ([]int64, error) {
	known, err := m.latest.IDs(ctx, authors)
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
	if err := m.latest.Store(ctx, known, read); err != nil {
		m.log.WarnContext(ctx, "newest posts of authors not stored; asked again", "error", err)
	}
	return known.IDs, nil
}
