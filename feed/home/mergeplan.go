package home

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
	"tideline/feed/internal/rows"
	"tideline/timeline"
)

// mergePlan says what a read of a home timeline puts together with the inbox.
type mergePlan struct {
	feeds []cachedFeed
	// skipInbox: the feeds have all that the inbox has.
	skipInbox bool
	// after is the id above which the feeds are all that there are; below it there
	// may be others.
	after int64
}

// maxOutboxes is how many outboxes one page is put together from at the most.
const maxOutboxes = 1000

// errTooManyOutboxes says that a page would take more: SQL answers.
var errTooManyOutboxes = errors.New("too many outboxes reach the page")

// plan is which outboxes the reads of a home timeline merge: of the followees
// whose posts are not pushed, into the inbox; or, where nearly nobody's are, of
// all followees and the viewer, without the inbox, which is fan-out on read.
// Merged is the list of merged authors from before the inbox was read, or nil.
//
// Of more than Policy.MergeAll authors it is the ones who reach the near end of
// the range: Redis knows the newest id of each. The newest ids, as many as the
// limit, have a lowest one, and authors who have posted nothing since are left
// out. That costs one round trip of O(authors), and a query of the authors whom
// Redis does not know yet.
func (h *Home) plan(ctx context.Context, viewer int64, merged *[]int64, r timeline.Range) (mergePlan, error) {
	p := mergePlan{after: r.After}
	if merged == nil {
		list, err := h.mergedAuthors(ctx)
		if err != nil {
			return p, err
		}
		merged = &list
	}
	authors, listed, err := h.mergedAmong(ctx, viewer, *merged)
	p.skipInbox = !listed
	if err == nil && !listed {
		authors, err = h.sources(ctx, viewer)
	}
	if err != nil {
		return p, err
	}
	if len(authors) > h.cfg.MergeAll {
		if authors, p.after, err = h.authorsReaching(ctx, authors, r); err != nil {
			return p, err
		}
	}
	for _, author := range authors {
		p.feeds = append(p.feeds, h.outbox(author))
	}
	return p, nil
}

// sources is whose posts the viewer's timeline has: the followees who are not
// muted, and the viewer. It costs one query of one row: thousands of rows take
// longer to receive than to find.
func (h *Home) sources(ctx context.Context, viewer int64) ([]int64, error) {
	found, err := h.db.QueryContext(ctx, "SELECT string_agg(CAST(id AS TEXT), ',') FROM ("+sourcesOf+") s", viewer)
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

// authorsReaching is those of the authors who may have a post among the first of
// the range, as many as its limit, and the id above which nobody else has any.
func (h *Home) authorsReaching(ctx context.Context, authors []int64, r timeline.Range) (near []int64, after int64, err error) {
	latest, err := h.latestPosts(ctx, authors)
	if err != nil {
		return nil, 0, err
	}
	type head struct{ author, id int64 }
	heads := make([]head, 0, len(authors))
	above := 0 // how many posted beyond the near end too: what they have in the range is not known
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

// latestPosts is, of each author, an id that none in the outbox is above. The ones
// that Redis does not know it reads from SQL, and stores.
func (h *Home) latestPosts(ctx context.Context, authors []int64) ([]int64, error) {
	known, err := h.tl.LatestPostIDs(ctx, authors)
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
		err := h.db.User.Query().Where(rows.Among(user.FieldID, chunk)).Select(user.FieldID, user.FieldLastPostID).Scan(ctx, &list)
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
	if err := h.tl.StoreLatest(ctx, known, read); err != nil {
		h.log.WarnContext(ctx, "newest posts of authors not stored; asked again", "error", err)
	}
	return known.IDs, nil
}
