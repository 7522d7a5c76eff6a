package visibility

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/predicate"
	"tideline/ent/schema"
	"tideline/feed/internal/rows"
	"tideline/internal/errs"
	"tideline/internal/lru"
	"tideline/timeline"
)

// Reader reads posts for viewers. It is safe for concurrent use.
type Reader struct {
	Followers Followers
	Unchecked Unchecked

	db         *ent.Client
	dialect    string
	version    atomic.Int64
	statements [combinations]string // byKey's queries for a viewer
	anonymous  [combinations]string // byKey's queries for an anonymous viewer, without likes
	bases      [combinations]string // scanBases' queries for a viewer: posts with the viewer's wishes
	ends       ends
	relations  string // the query of relationsAmong for one viewer
	userStates string // the query of UserStates
	links      *lru.Cache[int64, links]
}

// New returns a Reader of the database; dialect is dialect.SQLite or dialect.Postgres.
func New(db *ent.Client, dialect string) *Reader {
	r := &Reader{
		Followers: Followers{db, dialect}, Unchecked: Unchecked{db, dialect},
		db: db, dialect: dialect, ends: endsOf(dialect), relations: relationsAmong(dialect, "= $1", edges), userStates: userStates(dialect),
		links: lru.New[int64, links](linksBytes),
	}
	flags := map[Fields]string{0: flagsFor("$1", "p", false), Likes: flagsFor("$1", "p", true)}
	words, anyone := wordsOf("$1"), "$1 * 0 + "+authorHidden("p")
	wishes := wishesOf(dialect) + " || '" + betweenWords + "' || " + words
	for with := range r.statements {
		with := Fields(with)
		r.statements[with] = statement(dialect, flags[with&Likes], words, with)
		r.bases[with] = statement(dialect, flags[with&Likes], wishes, with)
		r.anonymous[with] = statement(dialect, anyone, "''", with)
	}
	return r
}

// Version rises with every committed change in this process after which a viewer may see less. A
// verdict of an older version must be made anew.
func (r *Reader) Version() int64 { return r.version.Load() }

// VisibilityReduced raises the version. Every operation after which a viewer may see less calls it after its
// transaction and before it returns. It does so even if the commit failed, because the change may
// have been committed all the same.
func (r *Reader) VisibilityReduced() { r.version.Add(1) }

// Batch is the part of a range that a Source found at the near end. There is no verdict on its
// posts yet. Callers get them only through Fill and Visible, which apply mayShow.
type Batch struct {
	posts []*ent.Post
	// Last is the id up to which the source has looked. It may lie behind the last post.
	Last int64
	// More reports whether there may be more posts after Last.
	More bool
}

// Then returns the batch followed by the next one.
func (b Batch) Then(next Batch) Batch {
	next.posts = append(b.posts[:len(b.posts):len(b.posts)], next.posts...)
	return next
}

// Without returns the batch without the posts for which has returns true.
func (b Batch) Without(has func(post int64) bool) Batch {
	b.posts = slices.DeleteFunc(slices.Clone(b.posts), func(p *ent.Post) bool { return has(p.ID) })
	return b
}

// Visible returns the posts of the batch with ids greater than above that the viewer may be shown
// on the surface.
func (b Batch) Visible(on Surface, viewer, above int64) ([]*ent.Post, error) {
	newer := slices.DeleteFunc(slices.Clone(b.posts), func(p *ent.Post) bool { return p.ID <= above })
	return shown(on, viewer, newer)
}

// Source reads posts for the viewer from the near end of a range, at most the range's limit. It may
// leave out posts that the viewer may not see, but it gives no verdict: every post that it returns
// goes through Fill.
type Source func(ctx context.Context, viewer int64, r timeline.Range) (Batch, error)

// Fill reads from the source until it has the range's limit of posts that the viewer may be shown
// on the surface, or until the range is exhausted. So a page is full while there is more to see.
//
// Cost: as the source. A run of hidden posts in its result costs another read of twice the size.
func Fill(ctx context.Context, on Surface, viewer int64, r timeline.Range, from Source) ([]*ent.Post, error) {
	n := r.Limit
	kept := make([]*ent.Post, 0, n)
	// Hidden posts tend to come in runs, so every further read is larger.
	for ; ; r.Limit = min(2*r.Limit, 1000) {
		b, err := from(ctx, viewer, r)
		if err != nil {
			return nil, err
		}
		visible, err := shown(on, viewer, b.posts)
		if err != nil {
			return nil, err
		}
		kept = append(kept, visible[:min(len(visible), n-len(kept))]...)
		if len(kept) == n || !b.More {
			return kept, nil
		}
		r = r.Behind(b.Last)
	}
}

// shown returns the posts that the viewer may be shown on the surface, in order. The posts must
// have been read for this viewer. It costs no query.
func shown(on Surface, viewer int64, posts []*ent.Post) ([]*ent.Post, error) {
	kept := make([]*ent.Post, 0, len(posts))
	for _, p := range posts {
		flags, err := flagsOf(p)
		if err == nil && flags&wordless != 0 && on != Inbox {
			err = fmt.Errorf("post %d was read for an inbox", p.ID)
		}
		if err != nil {
			return nil, err
		}
		if mayShow(on, viewer, flags, p) {
			kept = append(kept, p)
		}
	}
	return kept, nil
}

// Posts returns the posts with the given ids that the viewer may be shown on the surface, with the
// fields, in the order of the ids. The entries of all other ids are nil.
//
// Cost: one query by primary key, and one more if some are replies or reposts that this process has not
// read before.
func (r *Reader) Posts(ctx context.Context, on Surface, viewer int64, ids []int64, with Fields) ([]*ent.Post, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	list, err := r.byKey(ctx, viewer, ids, with)
	if err != nil {
		return nil, err
	}
	if list, err = shown(on, viewer, list); err != nil {
		return nil, err
	}
	return rows.InOrder(ids, list, postID), nil
}

// Data returns the app's own fields of posts that the viewer was shown, in the order of the ids.
// They are ent.NoData for a post that the viewer may no longer see.
//
// Cost: as Posts.
func (r *Reader) Data(ctx context.Context, viewer int64, ids []int64) ([]*string, error) {
	list, err := r.byKey(ctx, viewer, ids, Data)
	if err == nil {
		list, err = shown(Direct, viewer, list)
	}
	if err != nil {
		return nil, err
	}
	data := make([]*string, len(ids))
	for i, p := range rows.InOrder(ids, list, postID) {
		if data[i] = new(ent.NoData); p != nil {
			data[i] = p.Data
		}
	}
	return data, nil
}

func postID(p *ent.Post) int64 { return p.ID }

// ByIDs returns a batch of the posts with the given ids, in their order, and the ids that have no
// post. ids must not be empty.
//
// Cost: as Posts.
func (r *Reader) ByIDs(ctx context.Context, viewer int64, ids []int64, with Fields) (b Batch, gone []int64, err error) {
	b.Last = ids[len(ids)-1]
	list, err := r.byKey(ctx, viewer, ids, with)
	if err != nil {
		return b, nil, err
	}
	ordered := rows.InOrder(ids, list, postID)
	if len(list) == len(ids) {
		b.posts = ordered
		return b, nil, nil
	}
	for i, p := range ordered {
		if p == nil {
			gone = append(gone, ids[i])
		} else {
			b.posts = append(b.posts, p)
		}
	}
	return b, gone, nil
}

// matching returns the source of all stored posts that match the predicate.
func (r *Reader) matching(match predicate.Post) Source {
	return func(ctx context.Context, viewer int64, in timeline.Range) (Batch, error) {
		order := ent.Desc(post.FieldID)
		if in.Ascending {
			order = ent.Asc(post.FieldID)
		}
		q := r.db.Post.Query().Where(match, post.VisibilityNEQ(schema.Deleted), post.IDGT(in.After), post.IDLT(in.Upper())).Order(order).Limit(in.Limit)
		q.Modify(forViewer(viewer), rows.WithCounts)
		list, err := q.All(ctx)
		if err != nil || len(list) == 0 {
			return Batch{}, errs.Wrap(err, "read posts")
		}
		words, err := keepFlags(list)
		if err == nil {
			err = r.addBases(ctx, r.db, viewer, list, Likes)
		}
		if err != nil {
			return Batch{}, err
		}
		for _, p := range list {
			keepWords(p, words)
		}
		return Batch{posts: list, Last: list[len(list)-1].ID, More: len(list) == in.Limit}, nil
	}
}

// AllBy returns the source of all posts by the author.
func (r *Reader) AllBy(author int64) Source { return r.matching(post.AuthorID(author)) }

// WhyHidden returns the author of the post and the rule that hides the post from the viewer's home
// timeline. why is empty if no rule hides it.
//
// Cost: as Posts.
func (r *Reader) WhyHidden(ctx context.Context, viewer, id int64) (author int64, why string, err error) {
	list, err := r.byKey(ctx, viewer, []int64{id}, 0)
	if err != nil {
		return 0, "", err
	}
	if len(list) == 0 {
		return 0, "there is no such post, or it was deleted", nil
	}
	p := list[0]
	return p.AuthorID, whyHidden(Home, viewer, Relation(p.ForViewer), p), nil
}
