package transfer

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/postmention"
	"tideline/ent/schema"
	"tideline/feed/ids"
	inner "tideline/feed/internal/rows"
	"tideline/feed/mention"
)

// posts writes posts in the order of their times. Posts of one millisecond are in the order of
// their ids in the file, because the id of a post from another server depends on which posts were
// there before. But a post comes after the posts that it names.
func (e *Export) posts(ctx context.Context, db *ent.Client) error {
	w := &postWriter{Export: e, db: db, waiting: map[int64][]exportedPost{}}
	var last []*ent.Post // posts of the last millisecond; the next page may have more
	err := pages(ctx, e, func(ctx context.Context, after int64) ([]*ent.Post, error) {
		return db.Post.Query().Where(post.IDGT(after), post.VisibilityNEQ(schema.Deleted)).Order(post.ByID()).Limit(perPage).All(ctx)
	}, func(p *ent.Post) int64 { return p.ID }, func(page []*ent.Post) error {
		page = append(last, page...)
		end := len(page)
		for end > 0 && ids.TimeOf(page[end-1].ID).Equal(ids.TimeOf(page[len(page)-1].ID)) {
			end--
		}
		last = slices.Clone(page[end:])
		return w.write(ctx, page[:end])
	})
	if err != nil {
		return err
	}
	err = w.write(ctx, last)
	for _, left := range w.waiting { // the other post was deleted meanwhile
		e.done.Alone += len(left)
	}
	return err
}

// postWriter writes the lines of posts.
type postWriter struct {
	*Export
	db *ent.Client
	// waiting are the posts that name a younger post, by its id. They are few: the ids of different
	// processes differ by the difference of their clocks.
	waiting map[int64][]exportedPost
}

// exportedPost is a post with its line.
type exportedPost struct {
	*ent.Post
	line  postLine
	names []int64 // the posts that the line names

	waited bool
}

// write writes all posts of some milliseconds.
func (w *postWriter) write(ctx context.Context, posts []*ent.Post) error {
	if len(posts) == 0 {
		return nil
	}
	list, err := w.lines(ctx, posts)
	if err != nil {
		return err
	}
	depth := depths(list)
	slices.SortFunc(list, func(a, b exportedPost) int {
		return cmp.Or(ids.TimeOf(a.ID).Compare(ids.TimeOf(b.ID)), depth[a.ID]-depth[b.ID], cmp.Compare(a.line.ID, b.line.ID))
	})
	for _, p := range list {
		if err := w.one(p); err != nil {
			return err
		}
	}
	return nil
}

// one writes a post, and then the posts that wait for it. A post that names a post of a later time
// waits.
func (w *postWriter) one(p exportedPost) error {
	latest := int64(0)
	for _, id := range p.names {
		latest = max(latest, id)
	}
	if ids.TimeOf(latest).After(ids.TimeOf(p.ID)) && !p.waited {
		p.waited = true
		w.waiting[latest] = append(w.waiting[latest], p)
		return nil
	}
	if err := w.out.Encode(p.line); err != nil {
		return err
	}
	w.done.Posts++
	waiting := w.waiting[p.ID]
	delete(w.waiting, p.ID)
	for _, next := range waiting {
		if err := w.one(next); err != nil {
			return err
		}
	}
	return nil
}

// depths returns how many posts of its own millisecond must come before a post, one after the other,
// by id.
func depths(list []exportedPost) map[int64]int {
	byID := make(map[int64]exportedPost, len(list))
	for _, p := range list {
		byID[p.ID] = p
	}
	depth := map[int64]int{}
	var of func(p exportedPost) int
	of = func(p exportedPost) int {
		if d, known := depth[p.ID]; known {
			return d
		}
		d := 0
		for _, id := range p.names {
			if other, ok := byID[id]; ok && ids.TimeOf(id).Equal(ids.TimeOf(p.ID)) {
				d = max(d, of(other)+1)
			}
		}
		depth[p.ID] = d
		return d
	}
	for _, p := range list {
		of(p)
	}
	return depth
}

// lines returns the lines of the posts that are in the file, and counts the others.
func (w *postWriter) lines(ctx context.Context, posts []*ent.Post) ([]exportedPost, error) {
	authorIDs := inner.Map(posts, func(p *ent.Post) int64 { return p.AuthorID })
	authors, hidden, err := w.userNames(ctx, w.db, authorIDs)
	if err != nil {
		return nil, err
	}
	names, err := w.postNames(ctx, w.db, inner.PostIDs(posts))
	if err != nil {
		return nil, err
	}
	named, err := w.named(ctx, posts)
	if err != nil {
		return nil, err
	}
	own, err := inner.PostData(ctx, w.db.PostData, inner.PostIDs(posts))
	if err != nil {
		return nil, err
	}
	mentions, err := w.mentions(ctx, posts)
	if err != nil {
		return nil, err
	}
	var list []exportedPost
	for i, p := range posts {
		author, ok := authors[p.AuthorID]
		if !ok {
			w.leave(hidden[p.AuthorID])
			continue
		}
		created, shown := moment(ids.TimeOf(p.ID)), p.Visibility.Shown()
		x := exportedPost{Post: p, line: postLine{Type: "post", ID: names[p.ID], Author: author, Text: p.Text, Visibility: &shown, CreatedAt: &created, Hidden: p.HiddenByModerators()}}
		if *own[i] != ent.NoData {
			x.line.Data = json.RawMessage(*own[i])
		}
		x.line.ReplyAudience, x.line.QuoteAudience = limit(p.ReplyAudience), limit(p.QuoteAudience)
		if len(mention.In(p.Text)) > 0 {
			x.line.Mentions = new(append([]mentionPart{}, mentions[p.ID]...))
		}
		if !x.link(named) {
			w.done.Alone++
			continue
		}
		list = append(list, x)
	}
	return list, nil
}

// link sets the posts that the line names. It returns false for a repost whose original, and a reply
// whose root, is not in the file. A reply to another post that is not in the file answers the root.
func (x *exportedPost) link(named map[int64]string) bool {
	name := func(id int64) string {
		x.names = append(x.names, id)
		return named[id]
	}
	switch {
	case x.RepostOf != 0:
		if named[x.RepostOf] == "" || x.RootID != 0 && named[x.RootID] == "" {
			return false
		}
		x.line.RepostOf = name(x.RepostOf)
	case x.ParentID != 0:
		if named[x.RootID] == "" {
			return false
		}
		parent := x.ParentID
		if named[parent] == "" {
			parent = x.RootID
		}
		x.line.ReplyTo = name(parent)
	}
	if x.QuoteOf != 0 && named[x.QuoteOf] != "" {
		x.line.QuoteOf, x.line.QuoteWithdrawn = name(x.QuoteOf), x.QuoteWithdrawn
	}
	return true
}

// named returns the ids in the file of the posts that the posts name, without posts that are not in
// it.
func (w *postWriter) named(ctx context.Context, posts []*ent.Post) (map[int64]string, error) {
	var postIDs []int64
	for _, p := range posts {
		for _, id := range []int64{p.ParentID, p.RootID, p.RepostOf, p.QuoteOf} {
			if id != 0 {
				postIDs = append(postIDs, id)
			}
		}
	}
	if len(postIDs) == 0 {
		return nil, nil
	}
	found, err := w.db.Post.Query().Where(inner.Among(post.FieldID, distinct(postIDs)), post.VisibilityNEQ(schema.Deleted)).
		Select(post.FieldID, post.FieldAuthorID, post.FieldRootID).All(ctx)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if found, err = w.withRoots(ctx, found); err != nil {
		return nil, err
	}
	authorIDs := inner.Map(found, func(p *ent.Post) int64 { return p.AuthorID })
	authors, _, err := w.userNames(ctx, w.db, authorIDs)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(p *ent.Post) bool { return authors[p.AuthorID] == "" })
	return w.postNames(ctx, w.db, inner.PostIDs(found))
}

// withRoots removes replies whose root is not in the file.
func (w *postWriter) withRoots(ctx context.Context, list []*ent.Post) ([]*ent.Post, error) {
	var rootIDs []int64
	for _, p := range list {
		if p.RootID != 0 {
			rootIDs = append(rootIDs, p.RootID)
		}
	}
	if len(rootIDs) == 0 {
		return list, nil
	}
	roots, err := w.db.Post.Query().Where(inner.Among(post.FieldID, distinct(rootIDs)), post.VisibilityNEQ(schema.Deleted)).
		Select(post.FieldID, post.FieldAuthorID).All(ctx)
	if err != nil {
		return nil, err
	}
	authorIDs := inner.Map(roots, func(p *ent.Post) int64 { return p.AuthorID })
	authors, _, err := w.userNames(ctx, w.db, authorIDs)
	if err != nil {
		return nil, err
	}
	there := map[int64]bool{}
	for _, p := range roots {
		there[p.ID] = authors[p.AuthorID] != ""
	}
	return slices.DeleteFunc(list, func(p *ent.Post) bool { return p.RootID != 0 && !there[p.RootID] }), nil
}

// mentions returns the mentions in the posts of users who are in the file, by post.
func (w *postWriter) mentions(ctx context.Context, posts []*ent.Post) (map[int64][]mentionPart, error) {
	found, err := w.db.PostMention.Query().Where(inner.Among(postmention.FieldPostID, inner.PostIDs(posts))).
		Order(ent.Asc(postmention.FieldPostID, postmention.FieldStart)).All(ctx)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	userIDs := inner.Map(found, func(m *ent.PostMention) int64 { return m.UserID })
	users, _, err := w.userNames(ctx, w.db, userIDs)
	if err != nil {
		return nil, err
	}
	byPost := map[int64][]mentionPart{}
	for _, m := range found {
		if user, ok := users[m.UserID]; ok {
			byPost[m.PostID] = append(byPost[m.PostID], mentionPart{user, m.Start, m.End})
		}
	}
	return byPost, nil
}

// limit returns nil for an audience of everyone. The app gives it to its posts, and the import leaves it out.
func limit(a schema.Audience) *schema.Audience {
	if a == "" || a == schema.Everyone {
		return nil
	}
	return &a
}
