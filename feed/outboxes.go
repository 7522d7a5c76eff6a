package feed

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tideline/ent/user"
)

// mergePlan is what a read of a feed puts together with it.
type mergePlan struct {
	feeds []cachedFeed
	// skipInbox the feed itself: the others have all that it has.
	skipInbox bool
	// low is the id above which the feeds are all that there are; below it there
	// may be others.
	low int64
}

// maxOutboxes is how many outboxes one page is put together from at the most.
const maxOutboxes = 1000

// errTooManyOutboxes says that a page would take more: SQL answers.
var errTooManyOutboxes = errors.New("too many outboxes reach the page")

// planNow is the outboxes that the reads of a home timeline merge: of the
// followees who are not pushed, into the inbox; or, where nearly nobody is, of
// all followees and the viewer, without the inbox, which is fan-out on read.
//
// Of more than Config.MergeAll authors it is the ones who reach the near end of
// the span: Redis knows the newest id of each. The n-th newest is a floor under
// the page, so whoever has posted nothing since is left out. That costs one round
// trip of O(authors), and a query of the authors whom Redis does not know yet.
func (f *Feed) planNow(ctx context.Context, viewer int64, s span, n int) (mergePlan, error) {
	list, err := f.mergedAuthors(ctx)
	if err != nil {
		return mergePlan{}, err
	}
	return f.planFor(list)(ctx, viewer, s, n)
}

// planFor is company by a list of the merged authors from before the inbox was
// read. By a later one, an author who was merged then would be neither here nor,
// yet, there.
func (f *Feed) planFor(list []int64) func(ctx context.Context, viewer int64, s span, n int) (mergePlan, error) {
	return func(ctx context.Context, viewer int64, s span, n int) (mergePlan, error) {
		authors, all, err := f.mergedOf(ctx, viewer, list)
		c := mergePlan{low: s.low, skipInbox: !all}
		if err == nil && !all {
			authors, err = f.sources(ctx, viewer)
		}
		if err != nil {
			return c, err
		}
		if len(authors) > f.cfg.MergeAll {
			if authors, c.low, err = f.authorsReaching(ctx, authors, s, n); err != nil {
				return c, err
			}
		}
		for _, author := range authors {
			c.feeds = append(c.feeds, f.outbox(author))
		}
		return c, nil
	}
}

// sources is whose posts the viewer's timeline has: the followees who are not
// muted, and the viewer. It costs one query of one row: thousands of rows take
// longer to receive than to find.
func (f *Feed) sources(ctx context.Context, viewer int64) ([]int64, error) {
	rows, err := f.db.QueryContext(ctx, "SELECT string_agg(CAST(id AS TEXT), ',') FROM ("+sourcesOf+") s", viewer)
	if err != nil {
		return nil, fmt.Errorf("read followees: %w", err)
	}
	defer rows.Close()
	var list sql.NullString
	if rows.Next() {
		err = rows.Scan(&list)
	}
	if err = errors.Join(err, rows.Err()); err != nil || !list.Valid {
		return nil, wrap("read followees", err)
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

// authorsReaching is those of the authors who may have a post among the first n of the
// span, and the id above which nobody else has any.
func (f *Feed) authorsReaching(ctx context.Context, authors []int64, s span, n int) (near []int64, low int64, err error) {
	newest, err := f.newest(ctx, authors)
	if err != nil {
		return nil, 0, err
	}
	type head struct{ author, id int64 }
	heads := make([]head, 0, len(authors))
	above := 0 // how many posted beyond the near end too: what they have in the span is not known
	for i, id := range newest {
		if id > s.low {
			heads = append(heads, head{authors[i], id})
		}
		if id >= s.top() {
			above++
		}
	}
	low = s.low
	if !s.ascending && above+n < len(heads) {
		slices.SortFunc(heads, func(a, b head) int { return cmp.Compare(b.id, a.id) })
		heads = heads[:above+n]
		low = max(low, heads[above+n-1].id-1)
	}
	if len(heads) > maxOutboxes {
		return nil, 0, errTooManyOutboxes
	}
	for _, h := range heads {
		near = append(near, h.author)
	}
	return near, low, nil
}

// newest is, of each author, an id that none in the outbox is above. Those whom
// Redis does not know it learns from SQL.
func (f *Feed) newest(ctx context.Context, authors []int64) ([]int64, error) {
	known, err := f.tl.LatestPostIDs(ctx, authors)
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
	learnt := make(map[int64]int64, len(unknown))
	for chunk := range slices.Chunk(unknown, 10_000) {
		var rows []struct {
			ID         int64 `json:"id"`
			LastPostID int64 `json:"last_post_id"`
		}
		err := f.db.User.Query().Where(f.among(user.FieldID, chunk)).Select(user.FieldID, user.FieldLastPostID).Scan(ctx, &rows)
		if err != nil {
			return nil, fmt.Errorf("read newest posts of authors: %w", err)
		}
		for _, row := range rows {
			learnt[row.ID] = row.LastPostID
		}
	}
	for i, id := range known.IDs {
		if id < 0 {
			known.IDs[i] = learnt[authors[i]]
		}
	}
	if err := f.tl.StoreLatest(ctx, known, learnt); err != nil {
		f.log.WarnContext(ctx, "newest posts of authors not stored; asked again", "error", err)
	}
	return known.IDs, nil
}
