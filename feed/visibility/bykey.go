package visibility

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"slices"
	"strings"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/feed/internal/rows"
	"tideline/internal/errs"
)

// Fields selects the data that is read together with posts, in the same statement. Data that was
// not read is unknown, not false.
type Fields uint8

// The fields.
const (
	// Likes reads whether the viewer likes the post.
	Likes Fields = 1 << iota
	// Author reads the author's id, handle, name and picture into the post's Edges.
	Author
	// Profile, together with Author, reads the author's bio, links, time of sign-up, counts of
	// followers and followees, and whether followers need approval.
	Profile
	// Whole, together with Profile, reads all other fields of a user that are shown without a query
	// of their own: counts of posts, the visibility of new posts, the role and HomeReplies.
	Whole
	// Data reads the app's own fields.
	Data
	// Bare leaves out the quote, the audiences, and the numbers of replies, reposts and quotes.
	Bare

	// All selects everything that an event may show of its post.
	All = Likes | Author | Profile | Whole | Data

	combinations = 1 << 6
)

// Pages of posts are the most frequent read, so this is SQL, built once, whose rows are scanned
// straight into posts.

// selecting returns the query of posts up to the condition on the ids, which the caller appends.
// Its first parameter is the viewer.
func selecting(of, flags, words string, with Fields) string {
	columns, from := "p.id, p.author_id, p.text, p.visibility, p.edited_at, coalesce(p.parent_id, 0), coalesce(p.parent_author_id, 0), coalesce(p.root_id, 0),"+
		" coalesce(p.repost_of, 0), "+flags+", "+words+", "+rows.Likes.Of(of, "p"), "posts p"
	if with&Bare == 0 {
		columns += ", coalesce(p.quote_of, 0), p.quote_withdrawn, coalesce(p.reply_audience, ''), coalesce(p.quote_audience, '')"
		for _, c := range []rows.Counter{rows.Replies, rows.Reposts, rows.Quotes} {
			columns += ", " + c.Of(of, "p")
		}
	}
	if with&Author != 0 {
		columns += ", u.handle, u.name, u.avatar_url"
		from += " JOIN users u ON u.id = p.author_id"
		if with&Profile != 0 {
			columns += ", u.bio, u.links, u.approves_followers, " + rows.Followers.Of(of, "u") + ", " + rows.Following.Of(of, "u") + ", u.created_at"
		}
		if with&Whole != 0 {
			columns += ", u.post_count, u.public_post_count, u.followers_post_count, u.mutuals_post_count, u.default_visibility, u.role, u.home_replies"
		}
	}
	if with&Data != 0 {
		columns += ", coalesce(d.data, '" + ent.NoData + "')"
		from += " LEFT JOIN post_data d ON d.post_id = p.id"
	}
	return fmt.Sprintf("SELECT %s FROM %s WHERE p.visibility <> '%s' AND p.id ", columns, from, schema.Deleted)
}

// statement returns the query of posts by id. Its parameters are the viewer and the ids.
func statement(of, flags, words string, with Fields) string {
	return selecting(of, flags, words, with) + rows.In(of, "$2", "bigint")
}

// readAtOnce is the largest number of posts that scan allocates at a time.
const readAtOnce = 100

// byKey reads the posts of the ids for a viewer, in any order.
//
// Cost: as read. A page of at most readAtOnce posts needs no second query for replies and reposts that the
// process has read before: on PostgreSQL, a page with a third of each costs 1.3 times a page with none, and 1.6
// times with that query (BenchmarkHomePage). Larger reads have that query, because the viewer's wishes, which grow
// with the read, come with each row.
func (r *Reader) byKey(ctx context.Context, viewer int64, ids []int64, with Fields) ([]*ent.Post, error) {
	if len(ids) <= readAtOnce {
		if known := r.knownLinks(ids); known != nil {
			return r.readWithBases(ctx, viewer, ids, known, with)
		}
	}
	return r.read(ctx, r.db, viewer, len(ids), with, r.statement(viewer, with), viewer, rows.List(r.dialect, ids))
}

// statement returns the query of posts by id for a viewer. Its parameters are the viewer and the ids.
func (r *Reader) statement(viewer int64, with Fields) string {
	if viewer == 0 {
		return r.anonymous[with]
	}
	return r.statements[with]
}

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*stdsql.Rows, error)
}

// InTx reads in a transaction what decides whether a user may do something.
type InTx struct {
	reader *Reader
	tx     *ent.Tx
}

// In returns the reads in tx.
func (r *Reader) In(tx *ent.Tx) InTx { return InTx{r, tx} }

// Lock makes transactions that change the post, its root or its original wait until this one ends.
//
// Cost: one statement of PostgreSQL. SQLite has one writer at a time and needs no lock.
func (r InTx) Lock(ctx context.Context, id int64) error {
	if r.reader.dialect != dialect.Postgres {
		return nil
	}
	_, err := r.tx.ExecContext(ctx, "SELECT id FROM posts WHERE id IN (SELECT $1 UNION ALL SELECT root_id FROM posts WHERE id = $1"+
		" UNION ALL SELECT repost_of FROM posts WHERE id = $1) ORDER BY id FOR SHARE", id)
	return errs.Wrap(err, "lock post")
}

// Post returns a post that the viewer may see by its id, or nil.
//
// Cost: one query by primary key, and one more for a reply or a repost.
func (r InTx) Post(ctx context.Context, viewer, id int64) (*ent.Post, error) {
	list, err := r.reader.read(ctx, r.tx, viewer, 1, 0, r.reader.statements[0], viewer, rows.List(r.reader.dialect, []int64{id}))
	if err != nil {
		return nil, err
	}
	if list, err = shown(Direct, viewer, list); err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// Relation returns the viewer's relation to another user.
//
// Cost: as Reader.Relations.
func (r InTx) Relation(ctx context.Context, viewer, other int64) (Relation, error) {
	found, err := r.reader.related(ctx, r.tx, r.reader.relations, viewer, []int64{other})
	return found.of(viewer, other), err
}

// read returns the posts of a query for a viewer that begins with selecting. The query returns at most
// most posts.
//
// Cost: the query, and that of addBases.
func (r *Reader) read(ctx context.Context, in querier, viewer int64, most int, with Fields, query string, args ...any) ([]*ent.Post, error) {
	list, words, err := r.scan(ctx, in, most, with, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read posts: %w", err)
	}
	if err := r.addBases(ctx, in, viewer, list, with); err != nil {
		return nil, err
	}
	for _, p := range list {
		keepWords(p, words)
	}
	return list, nil
}

// scan executes the query of read. It returns the posts without their bases, and the viewer's muted words.
func (r *Reader) scan(ctx context.Context, in querier, most int, with Fields, query string, args ...any) (list []*ent.Post, words string, err error) {
	found, err := in.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, "", err
	}
	defer found.Close()
	var posts []ent.Post
	var authors []ent.User
	var into [40]any
	for ; found.Next(); posts = posts[1:] {
		if len(posts) == 0 { // a block at a time: usually there is one block, or there are few posts
			n := min(most, readAtOnce)
			list, posts = slices.Grow(list, n), make([]ent.Post, n)
			if with&Author != 0 {
				authors = make([]ent.User, n)
			}
		}
		p, visibility := &posts[0], ""
		row := append(into[:0], &p.ID, &p.AuthorID, &p.Text, &visibility, &p.EditedAt, &p.ParentID, &p.ParentAuthorID, &p.RootID,
			&p.RepostOf, &p.ForViewer, &words, &p.LikeCount)
		if with&Bare == 0 {
			row = append(row, &p.QuoteOf, &p.QuoteWithdrawn, &p.ReplyAudience, &p.QuoteAudience, &p.ReplyCount, &p.RepostCount, &p.QuoteCount)
		}
		if with&Author != 0 {
			u := &authors[0]
			authors = authors[1:]
			p.Edges.Author = u
			row = append(row, &u.Handle, &u.Name, &u.AvatarURL)
			if with&Profile != 0 {
				row = append(row, &u.Bio, &u.Links, &u.ApprovesFollowers, &u.FollowerCount, &u.FollowingCount, &u.CreatedAt)
			}
			if with&Whole != 0 {
				row = append(row, &u.PostCount, &u.PublicPostCount, &u.FollowersPostCount, &u.MutualsPostCount, &u.DefaultVisibility, &u.Role, &u.HomeReplies)
			}
		}
		if with&Data != 0 {
			p.Data = new(string)
			row = append(row, p.Data)
		}
		if err := found.Scan(row...); err != nil {
			return nil, "", err
		}
		p.Visibility = schema.Visibility(visibility)
		if p.Edges.Author != nil {
			p.Edges.Author.ID = p.AuthorID
		}
		list = append(list, p)
	}
	return list, words, found.Err()
}

// forViewer makes a query of posts that ent builds select the columns that keepFlags reads.
func forViewer(viewer int64) func(*sql.Selector) {
	return func(s *sql.Selector) {
		if viewer == 0 {
			s.AppendSelectExprAs(sql.Expr(authorHidden(post.Table)), columnFlags)
			return
		}
		s.AppendSelectExprAs(withViewer(viewer, func(parameter string) string { return flagsFor(parameter, post.Table, true) }), columnFlags)
		s.AppendSelectExprAs(withViewer(viewer, wordsOf), columnWords)
	}
}

// withViewer returns an SQL expression with the viewer as its argument.
func withViewer(viewer int64, expression func(parameter string) string) sql.Querier {
	const parameter = "$viewer"
	parts := strings.Split(expression(parameter), parameter)
	return sql.ExprFunc(func(b *sql.Builder) {
		b.WriteString(parts[0])
		for _, part := range parts[1:] {
			b.Arg(viewer).WriteString(part)
		}
	})
}

// keepFlags moves the flags that were read with posts to ForViewer, where flagsOf finds them, and returns
// the viewer's muted words.
func keepFlags(list []*ent.Post) (words string, err error) {
	for _, p := range list {
		value, err := p.Value(columnFlags)
		if err != nil {
			return "", fmt.Errorf("flags of post %d: %w", p.ID, err)
		}
		flags, ok := value.(int64)
		if !ok {
			return "", fmt.Errorf("flags of post %d are %T", p.ID, value)
		}
		p.ForViewer = flags
		if value, err := p.Value(columnWords); err == nil { // else it was read for an anonymous viewer
			if words, ok = value.(string); !ok {
				return "", fmt.Errorf("words of post %d are %T", p.ID, value)
			}
		}
	}
	return words, nil
}

// keepWords sets the flag MutesWord if the post has one of the words.
func keepWords(p *ent.Post, words string) {
	if hasAny(mutableText(p), words) {
		p.ForViewer |= int64(MutesWord)
	}
}
