package feed

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"tideline/ent"
	"tideline/ent/follow"
	"tideline/ent/like"
	"tideline/ent/mute"
	"tideline/ent/post"
	"tideline/ent/readmarker"
	"tideline/ent/schema"
	"tideline/timeline"
)

// sharedEvent is an event that many streams of this process bring at the same time,
// and what is found out about all of their viewers at once. A nil one is of an
// event that one stream alone brings.
type sharedEvent struct {
	feed  *Feed
	post  int64
	users []int64 // ascending

	mu    sync.Mutex
	found map[any]func() any
}

// Once is what made returned for the key, called once for all who are given the
// event; nil when that is one alone.
func (c *sharedEvent) Once(key any, made func() any) any {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	once := c.found[key]
	if once == nil {
		if c.found == nil {
			c.found = map[any]func() any{}
		}
		once = sync.OnceValue(made)
		c.found[key] = once
	}
	c.mu.Unlock()
	return once()
}

// Neutral is the event with the placeholder where it is a viewer's own.
func (e *PostAdded) Neutral(placeholder string) any {
	neutral := *e
	neutral.Edge.Cursor = placeholder
	return &neutral
}

// Own is what belongs where the placeholder is.
func (e *PostAdded) Own() string { return e.Edge.Cursor }

// Neutral is the event with the placeholder where it is a viewer's own.
func (e *PostRemoved) Neutral(placeholder string) any {
	return &PostRemoved{PostID: e.PostID, Position: placeholder}
}

// Own is what belongs where the placeholder is.
func (e *PostRemoved) Own() string { return e.Position }

// LikedWith is Liked of an event's post. It costs one query for all to whom the
// event is told at the same time.
func (f *Feed) LikedWith(ctx context.Context, v Viewer, e *PostAdded) (bool, error) {
	type key struct{}
	found, _ := e.Once(key{}, func() any {
		users, err := f.db.Like.Query().Where(like.PostID(e.post), f.among(like.FieldUserID, e.users)).
			Select(like.FieldUserID).Ints(context.WithoutCancel(ctx))
		return answer[[]int]{users, err}
	}).(answer[[]int])
	if e.sharedEvent == nil || found.err != nil {
		liked, err := f.likedNow(ctx, v, []int64{e.Edge.Node.ID})
		return err == nil && liked[0], err
	}
	return slices.Contains(found.value, int(v.ID)), nil
}

type answer[T any] struct {
	value T
	err   error
}

// UnreadWith is UnreadCount when the event is told. It costs a constant number
// of queries and round trips for all to whom it is told at the same time, where
// Redis has their timelines.
func (f *Feed) UnreadWith(ctx context.Context, v Viewer, e *PostAdded) (int, error) {
	type key struct{}
	found, _ := e.Once(key{}, func() any {
		counts, err := f.unread(context.WithoutCancel(ctx), e.users)
		if err != nil {
			f.log.WarnContext(ctx, "unread posts not counted for many", "error", err)
		}
		return counts
	}).(map[int64]int)
	if count, ok := found[v.ID]; ok {
		return count, nil
	}
	return f.UnreadCount(ctx, v)
}

const (
	// unreadPosts and unreadPairs bound what is held at a time to count unread
	// posts for many: posts, and pairs of a viewer and an author.
	unreadPosts = 20_000
	unreadPairs = 500_000
)

// unread is UnreadCount of many users, as far as Redis has their timelines whole;
// the others are left out. It costs at most eight queries for a thousand users,
// and two round trips.
func (f *Feed) unread(ctx context.Context, users []int64) (map[int64]int, error) {
	counts := make(map[int64]int, len(users))
	for chunk := range slices.Chunk(users, 1000) {
		held, err := f.unreadIDs(ctx, chunk)
		if err != nil {
			return counts, err
		}
		if err := f.countShown(ctx, held, counts); err != nil {
			return counts, err
		}
	}
	return counts, nil
}

// unreadIDs is the ids of the posts above their read markers in the timelines of
// users, hidden ones included; of users whose timeline Redis does not have whole,
// none.
func (f *Feed) unreadIDs(ctx context.Context, users []int64) (map[int64][]int64, error) {
	markers, err := f.db.ReadMarker.Query().Where(f.among(readmarker.FieldID, users)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read markers: %w", err)
	}
	above := make(map[int64]int64, len(users))
	for _, m := range markers {
		above[m.ID] = m.PostID
	}
	merged, err := f.mergedAuthors(ctx)
	if err != nil || len(merged) == maxMergedAuthors {
		return nil, err
	}
	outboxes := map[int64][]int64{} // of the authors whom the user's reads merge
	if len(merged) > 0 {
		rows, err := f.db.Follow.Query().Where(f.among(follow.FieldFollowerID, users), f.among(follow.FieldFolloweeID, merged)).All(ctx)
		if err != nil {
			return nil, fmt.Errorf("read followees to merge: %w", err)
		}
		for _, row := range rows {
			outboxes[row.FollowerID] = append(outboxes[row.FollowerID], row.FolloweeID)
		}
	}
	inboxes, lowest := make([]timeline.Above, len(users)), above[users[0]]
	for i, user := range users {
		inboxes[i] = timeline.Above{Key: timeline.Inbox(user), After: above[user]}
		lowest = min(lowest, above[user])
	}
	feeds := inboxes
	place := map[int64]int{} // of an author's outbox
	for _, authors := range outboxes {
		for _, author := range authors {
			if _, known := place[author]; !known {
				place[author] = len(feeds)
				feeds = append(feeds, timeline.Above{Key: timeline.Outbox(author), After: lowest})
			}
		}
	}
	n := f.cfg.InboxCap
	parts, err := f.tl.PagesAbove(ctx, feeds, n)
	if err != nil {
		return nil, err
	}
	held := make(map[int64][]int64, len(users))
	for i, user := range users {
		mine := []timeline.Part{parts[i]}
		for _, author := range outboxes[user] {
			mine = append(mine, parts[place[author]])
		}
		ready := len(outboxes[user]) <= defaultMergeAll
		for _, p := range mine {
			ready = ready && p.State == timeline.Ready
		}
		s := span{low: above[user]}
		ids, floor := merge(mine, s, n)
		below := slices.IndexFunc(ids, func(id int64) bool { return id <= s.low })
		if below >= 0 {
			ids = ids[:below]
		}
		if ready && (len(ids) == n || floor <= s.low+1) {
			held[user] = ids
		}
	}
	return held, nil
}

// countShown counts those of the posts held by each user that the user may be
// shown and has not written. Users of whose posts there are too many for
// everybody's at once are left out.
func (f *Feed) countShown(ctx context.Context, held map[int64][]int64, counts map[int64]int) error {
	posts := map[int64]*ent.Post{}
	var users []int64
	for user, ids := range held {
		if len(posts)+len(ids) > unreadPosts {
			continue
		}
		users = append(users, user)
		for _, id := range ids {
			posts[id] = nil
		}
	}
	for chunk := range slices.Chunk(slices.Sorted(maps.Keys(posts)), 5000) {
		rows, err := f.db.Post.Query().Where(f.among(post.FieldID, chunk)).All(ctx)
		if err != nil {
			return fmt.Errorf("read posts: %w", err)
		}
		for _, row := range rows {
			posts[row.ID] = row
		}
	}
	relations, err := f.relationsOf(ctx, users, posts)
	if err != nil || relations == nil {
		return err
	}
	for _, user := range users {
		unread, hidden := 0, 0
		for _, id := range held[user] {
			p := posts[id]
			switch {
			case p == nil || !mayShow(HomeTimeline, user, relations[between{user, p.AuthorID}], p):
				hidden++
			case p.AuthorID != user:
				unread++
			}
		}
		if hidden == 0 || len(held[user]) < f.cfg.InboxCap { // else there may be more below
			counts[user] = unread
		}
	}
	return nil
}

// between is a viewer and another user.
type between struct{ viewer, other int64 }

// relationsOf is how users stand to the authors of posts, as far as mayShow needs
// it of those whom they follow: who follows does not block and is not blocked. It
// is nil when there are too many.
func (f *Feed) relationsOf(ctx context.Context, users []int64, posts map[int64]*ent.Post) (map[between]Relation, error) {
	authors, friends := map[int64]bool{}, map[int64]bool{}
	for _, p := range posts {
		if p != nil {
			authors[p.AuthorID] = true
			friends[p.AuthorID] = friends[p.AuthorID] || p.Visibility == schema.Mutuals
		}
	}
	if len(users)*len(authors) > unreadPairs {
		return nil, nil
	}
	found := map[between]Relation{}
	all := slices.Sorted(maps.Keys(authors))
	following, err := f.db.Follow.Query().Where(f.among(follow.FieldFollowerID, users), f.among(follow.FieldFolloweeID, all)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read relations: %w", err)
	}
	for _, row := range following {
		found[between{row.FollowerID, row.FolloweeID}] = Relation{Following: true}
	}
	muting, err := f.db.Mute.Query().Where(f.among(mute.FieldMuterID, users), f.among(mute.FieldMutedID, all)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read relations: %w", err)
	}
	for _, row := range muting {
		r := found[between{row.MuterID, row.MutedID}]
		r.Muting = true
		found[between{row.MuterID, row.MutedID}] = r
	}
	all = slices.DeleteFunc(all, func(author int64) bool { return !friends[author] })
	if len(all) == 0 {
		return found, nil
	}
	followed, err := f.db.Follow.Query().Where(f.among(follow.FieldFollowerID, all), f.among(follow.FieldFolloweeID, users)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read relations: %w", err)
	}
	for _, row := range followed {
		r := found[between{row.FolloweeID, row.FollowerID}]
		r.FollowedBy = true
		found[between{row.FolloweeID, row.FollowerID}] = r
	}
	return found, nil
}
