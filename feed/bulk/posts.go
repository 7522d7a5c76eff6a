package bulk

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"tideline/ent"
	"tideline/ent/hiddenuser"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/feed/ids"
	"tideline/feed/internal/rows"
	"tideline/feed/internal/text"
	"tideline/feed/job"
	"tideline/feed/refusal"
	"tideline/feed/tag"
	"tideline/feed/visibility"
	"tideline/internal/errs"
	"tideline/queue"
	"tideline/timeline"
)

// Post is a post from another server.
type Post struct {
	ExternalID string // at the issuer, unique over all authors
	Author     string // the author's external id
	Text       string
	Visibility *schema.Visibility // defaults to the author's default
	Data       *string            // the app's own fields, a JSON object; nil: none, or unknown
	Hidden     bool               // hide a new post; an existing post stays as moderators here left it
	CreatedAt  *time.Time         // defaults to now
	// CreatedAtText is an alternative to CreatedAt, in the format of ParseTime. With a malformed
	// time only that row of a call is refused.
	CreatedAtText *string
	// ReplyTo, QuoteOf and RepostOf are the external ids of the posts that the post answers, quotes
	// and reposts; "" for none. They are posts of earlier rows or calls; a repost stands for its
	// original. A repost has no text.
	ReplyTo, QuoteOf, RepostOf string
	// These are set for a new post that is neither a reply nor a repost. They default to everyone.
	ReplyAudience, QuoteAudience *schema.Audience
	// QuoteWithdrawn: the author of the quoted post has withdrawn a new quote.
	QuoteWithdrawn bool
	// Mentions are the mentions in the text of a new post; nil: find them by handle.
	Mentions []Mention
}

// backdated is the age from which a post takes its place among old posts. Ordinary posts of that
// age have been delivered, and no process makes ids for that time any more.
const backdated = 15 * time.Minute

// Posts writes posts that do not exist yet. A post that is older than a quarter of an hour gets an
// id of its time: it takes its place in every timeline, and nobody is notified. A younger post gets
// the next id, like a post that is written now, and followers are notified. A post is never older
// than the posts that it answers, quotes or reposts. The sender decides who may do so. Posts refuses a
// row whose post exists with another author, text, visibility or data, or names other posts. Error:
// BadInput, for more than MaxRows.
//
// Cost: ten statements a thousand rows, and a job; six more if rows name other posts, which are
// locked, and three with mentions; one more job for each young post. If the id that an
// old post should get is taken, one more statement for each step of the id clock with such posts. The
// job drops the inboxes of the followers of authors with old posts. A young post costs a round trip to
// Redis after the commit.
func (b *Bulk) Posts(ctx context.Context, issuer string, list []Post) ([]*Result, error) {
	return take(ctx, b, list, func(ctx context.Context, tx *ent.Tx, list []Post, results []*Result) error {
		return b.posts(ctx, tx, issuer, list, results)
	})
}

func (b *Bulk) posts(ctx context.Context, tx *ent.Tx, issuer string, list []Post, results []*Result) error {
	now := time.Now()
	var externalIDs, authorIDs []string
	seen := map[string]bool{}
	for i := range list {
		err := list[i].clean(b.cfg.MaxText, now)
		if err == nil && seen[list[i].ExternalID] {
			err = refusal.New(refusal.RepeatedRow, "An earlier row has the same external id.").In("externalId")
		}
		if err != nil {
			results[i] = refused(err)
			continue
		}
		seen[list[i].ExternalID] = true
		externalIDs, authorIDs = append(externalIDs, list[i].ExternalID), append(authorIDs, list[i].Author)
		externalIDs = append(externalIDs, list[i].names()...)
	}
	authors, err := b.acceptedUsersOf(ctx, tx, issuer, authorIDs, hiddenuser.StateSUSPENDED)
	if err != nil {
		return err
	}
	known, err := b.postsOf(ctx, tx, issuer, externalIDs)
	if err != nil {
		return err
	}
	link, err := newLinker(ctx, tx, known)
	if err != nil {
		return err
	}
	var newPosts []*ent.Post
	var positions []int // of the new posts in list
	for i, row := range list {
		if results[i] != nil {
			continue
		}
		author, p := authors[row.Author], known[row.ExternalID]
		switch {
		case author == nil:
			results[i] = refused(refusal.ErrNoSuchUser)
		case p == nil:
			named, err := link.of(&row)
			if err != nil {
				results[i] = refused(err)
				continue
			}
			p = &ent.Post{AuthorID: author.ID, Text: row.Text, Visibility: or(row.Visibility, author.DefaultVisibility), Data: new(or(row.Data, ent.NoData)),
				QuoteWithdrawn: row.QuoteWithdrawn, ReplyAudience: audience(row.ReplyAudience), QuoteAudience: audience(row.QuoteAudience)}
			if row.Hidden {
				p.Visibility = p.Visibility.Hidden()
			}
			link.newPosts[row.ExternalID], link.links[p] = p, named
			newPosts = append(newPosts, p)
			positions = append(positions, i)
		case p.AuthorID != author.ID || p.Text != row.Text || row.Visibility != nil && *row.Visibility != p.Visibility.Shown(), or(row.Data, *p.Data) != *p.Data, !link.same(&row, p):
			results[i] = refused(refusal.New(refusal.OtherContent, "The post already exists with another author, text, visibility or data, or it names other posts."))
		default:
			results[i] = &Result{Status: Unchanged, Post: p.ID}
		}
	}
	if len(newPosts) == 0 {
		return nil
	}
	var users []int64
	for _, p := range newPosts {
		users = append(users, p.AuthorID)
	}
	users = sorted(users)
	if err := lock(ctx, tx, users); err != nil {
		return err
	}
	if newPosts, positions, err = link.admit(ctx, b, tx, list, newPosts, positions, results); err != nil || len(newPosts) == 0 {
		return err
	}
	young, err := b.assignIDs(ctx, tx, issuer, list, positions, newPosts, link, now)
	if err != nil {
		return err
	}
	newPosts, positions = refuseWithoutID(newPosts, positions, results)
	if newPosts, positions = link.set(newPosts, positions, results); len(newPosts) == 0 {
		return nil
	}
	if err := b.insert(ctx, tx, issuer, list, positions, newPosts); err != nil {
		return err
	}
	for n, p := range newPosts {
		results[positions[n]] = &Result{Status: Created, Post: p.ID}
	}
	counts := visibility.CountNewPosts(newPosts)
	if err := exec(ctx, tx, "UPDATE users SET "+visibility.AddCounts+" FROM "+b.table(visibility.CountColumns...)+" WHERE users.id = r.author", counts); err != nil {
		return fmt.Errorf("count posts: %w", err)
	}
	if err := b.countNamed(ctx, tx, newPosts); err != nil {
		return err
	}
	young = slices.DeleteFunc(young, func(p *ent.Post) bool { return p.ID == 0 }) // it names a post that was refused
	for _, p := range young {
		created := job.Post{Post: p.ID, Author: p.AuthorID}
		if p.ParentID != 0 {
			created = created.ToldToConversation(p)
		}
		if err := b.cfg.Queue.Enqueue(ctx, tx, queue.Large, job.PostCreated, created); err != nil {
			return err
		}
	}
	// A young post is pushed. Feeds lack old posts, so they are dropped, and the next reads take them from
	// SQL.
	isYoung, hasOld := map[*ent.Post]bool{}, map[int64]bool{}
	for _, p := range young {
		isYoung[p] = true
	}
	for _, p := range newPosts {
		hasOld[p.AuthorID] = hasOld[p.AuthorID] || !isYoung[p]
	}
	authored := job.Authors{}
	for _, c := range counts {
		if hasOld[c.Author] {
			authored.Authors, authored.Newest = append(authored.Authors, c.Author), append(authored.Newest, c.Last)
		}
	}
	for _, p := range newPosts {
		if p.ParentID != 0 && !isYoung[p] {
			authored.Roots = append(authored.Roots, p.RootID)
		}
	}
	slices.Sort(authored.Roots)
	authored.Roots = slices.Compact(authored.Roots)
	b.onCommit(tx, func(ctx context.Context) error {
		if err := b.cfg.Timelines.Own.Forget(ctx, authored.Authors, authored.Newest); err != nil {
			return err
		}
		return b.addOwn(ctx, young)
	})
	if len(authored.Authors) == 0 {
		return nil
	}
	return b.cfg.Queue.Enqueue(ctx, tx, queue.Large, job.PostsBackdated, authored)
}

// addOwn adds young posts to their authors' own feeds, so that an author's next read has them. Their
// jobs do it again.
func (b *Bulk) addOwn(ctx context.Context, posts []*ent.Post) error {
	for _, p := range posts {
		done := b.cfg.Timelines.Own.Change(ctx, timeline.OwnChange{Author: p.AuthorID, Post: p.ID})
		if err := errors.Join(done.Inbox, done.Outbox); err != nil {
			return err
		}
	}
	return nil
}

// newPost is a row of the inserts of a post and its external id.
type newPost struct {
	ID         int64             `json:"a"`
	Author     int64             `json:"b"`
	Text       string            `json:"c"`
	Visibility schema.Visibility `json:"d"`
	ExternalID string            `json:"e"` // in hexadecimal digits

	Parent         int64           `json:"f,omitempty"`
	ParentAuthor   int64           `json:"g,omitempty"`
	Root           int64           `json:"h,omitempty"`
	RepostOf       int64           `json:"i,omitempty"`
	QuoteOf        int64           `json:"j,omitempty"`
	QuoteWithdrawn bool            `json:"k"`
	ReplyAudience  schema.Audience `json:"l,omitempty"`
	QuoteAudience  schema.Audience `json:"m,omitempty"`
}

// newTag is a row of the insert of tags.
type newTag struct {
	Post int64  `json:"a"`
	Tag  string `json:"b"`
}

// insert inserts the new posts with their external ids, tags and data. positions are the positions of
// the posts in list.
func (b *Bulk) insert(ctx context.Context, tx *ent.Tx, issuer string, list []Post, positions []int, newPosts []*ent.Post) error {
	create := make([]newPost, len(newPosts))
	for n, p := range newPosts {
		create[n] = newPost{p.ID, p.AuthorID, p.Text, p.Visibility, hex.EncodeToString([]byte(list[positions[n]].ExternalID)),
			p.ParentID, p.ParentAuthorID, p.RootID, p.RepostOf, p.QuoteOf, p.QuoteWithdrawn, p.ReplyAudience, p.QuoteAudience}
	}
	// Every transaction inserts in the same order, so that two transactions cannot deadlock.
	slices.SortFunc(create, func(a, b newPost) int { return strings.Compare(a.ExternalID, b.ExternalID) })
	from := b.table("a bigint", "b bigint", "c text", "d text", "e text", "f bigint", "g bigint", "h bigint", "i bigint", "j bigint", "k boolean", "l text", "m text")
	err := exec(ctx, tx, "INSERT INTO posts (id, author_id, text, visibility, parent_id, parent_author_id, root_id, repost_of, quote_of, quote_withdrawn, reply_audience, quote_audience)"+
		" SELECT r.a, r.b, r.c, r.d, r.f, r.g, r.h, r.i, r.j, r.k, r.l, r.m FROM "+from, create)
	if err != nil {
		return fmt.Errorf("create posts: %w", err)
	}
	err = exec(ctx, tx, "INSERT INTO external_posts (post_id, issuer, external_id) SELECT r.a, $2, "+b.unhex("r.e")+" FROM "+from, create, issuer)
	if err != nil {
		return fmt.Errorf("name posts: %w", err)
	}
	var tags []newTag
	for _, p := range newPosts {
		for _, tag := range tag.In(p.Text) {
			tags = append(tags, newTag{p.ID, tag})
		}
	}
	if len(tags) > 0 {
		if err := exec(ctx, tx, "INSERT INTO post_tags (post_id, tag) SELECT r.a, r.b FROM "+b.table("a bigint", "b text"), tags); err != nil {
			return fmt.Errorf("tag posts: %w", err)
		}
	}
	if err := b.mention(ctx, tx, issuer, list, positions, newPosts); err != nil {
		return err
	}
	var kept []data
	for _, p := range newPosts {
		if *p.Data != ent.NoData {
			kept = append(kept, data{p.ID, *p.Data})
		}
	}
	return b.keepData(ctx, tx, "post_data", "post_id", kept)
}

// clean checks the row, and normalises its text and data.
func (p *Post) clean(maxText int, now time.Time) (err error) {
	if err := checkID(p.ExternalID); err != nil {
		return err
	}
	if p.CreatedAt, err = createdAt(p.CreatedAt, p.CreatedAtText, now); err != nil {
		return err
	}
	if p.CreatedAt != nil && p.CreatedAt.Before(ids.Earliest) {
		return refusal.New(refusal.TooOld, "A post cannot be older than %s, when ids begin.", ids.Earliest.Format(time.DateOnly)).In("createdAt")
	}
	if p.Data, err = cleanData(p.Data); err != nil {
		return err
	}
	if err := p.cleanLinks(); err != nil {
		return err
	}
	if p.RepostOf != "" {
		p.Text = ""
		return nil
	}
	if p.Text, err = text.OfPost(maxText).Clean(p.Text); err != nil {
		return err
	}
	return p.checkMentions()
}

// audience returns the stored value of an audience.
func audience(given *schema.Audience) schema.Audience {
	if given == nil || *given == schema.Everyone {
		return ""
	}
	return *given
}

// postsOf returns the posts with the external ids at the issuer, by external id.
func (b *Bulk) postsOf(ctx context.Context, tx *ent.Tx, issuer string, externalIDs []string) (map[string]*ent.Post, error) {
	byName := make(map[string]*ent.Post, len(externalIDs))
	err := b.named(ctx, tx, "SELECT t.external_id, p.id, p.author_id, p.text, p.visibility, coalesce(d.data, '"+ent.NoData+"')"+linkColumns+" FROM ",
		"external_posts", " JOIN posts p ON p.id = t.post_id LEFT JOIN post_data d ON d.post_id = p.id",
		issuer, externalIDs, func(row *sql.Rows) error {
			var name []byte
			p := &ent.Post{Data: new(string)}
			err := scanLinks(row, p, &name, &p.ID, &p.AuthorID, &p.Text, &p.Visibility, p.Data)
			byName[string(name)] = p
			return err
		})
	return byName, errs.Wrap(err, "find posts")
}

// spread is the number of steps of the id clock after a full step over which further posts of that
// step are spread: 4 seconds, or 82 seconds before 2026. So there are ids for up to 16 million posts
// of one moment. Each post tries only one of these steps, so the last posts before that bound may be
// refused.
const spread = 4096

// assignIDs gives the new posts their ids, and returns the young posts. An old post takes a free id
// of its step of the id clock. If that step is full, as happens with an archive that stores only
// days, it takes a free id of one of the next steps. If that step is also full, its id stays 0.
//
// A hash of the external id chooses both the first id that is tried in a step and the second step, so
// that posts of one moment do not all try the same.
func (b *Bulk) assignIDs(ctx context.Context, tx *ent.Tx, issuer string, list []Post, positions []int, newPosts []*ent.Post, link *linker, now time.Time) (young []*ent.Post, err error) {
	var old []*ent.Post
	hashes, times := map[*ent.Post]int64{}, map[*ent.Post]time.Time{}
	for n, p := range newPosts {
		row := list[positions[n]]
		created := link.noEarlier(p, row.CreatedAt, times, now)
		if created == nil || created.After(now.Add(-backdated)) {
			if p.ID, err = b.cfg.IDs.Next(); err != nil {
				return nil, err
			}
			young = append(young, p)
			continue
		}
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(issuer + "\x00" + row.ExternalID))
		hashes[p] = int64(hash.Sum64() >> 1)
		p.ID = max(ids.At(*created)+hashes[p]%ids.PerStep, 1)
		old = append(old, p)
	}
	taken := map[int64]bool{}
	firstTries := map[*ent.Post]int64{}
	for _, p := range old {
		firstTries[p] = p.ID
	}
	unplaced, err := takeFreeIDs(ctx, tx, old, taken)
	if err != nil {
		return nil, err
	}
	for _, p := range unplaced {
		p.ID = firstTries[p] + (1+hashes[p]/ids.PerStep%spread)*ids.PerStep
	}
	_, err = takeFreeIDs(ctx, tx, unplaced, taken)
	return young, err
}

// takeFreeIDs gives each post a free id of the same step as its present id: the present id if it is
// free. Ids in taken are not free; takeFreeIDs adds the ids that it gives, and ids that it finds in
// SQL. It returns the posts whose steps are full, with the id 0.
func takeFreeIDs(ctx context.Context, tx *ent.Tx, list []*ent.Post, taken map[int64]bool) (unplaced []*ent.Post, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	inSQL, err := tx.Post.Query().Where(rows.Among(post.FieldID, rows.PostIDs(list))).IDs(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for free ids: %w", err)
	}
	for _, id := range inSQL {
		taken[id] = true
	}
	crowded := map[int64][]*ent.Post{} // by the first id of the step
	for _, p := range list {
		if taken[p.ID] {
			step := p.ID - p.ID%ids.PerStep
			crowded[step] = append(crowded[step], p)
		}
		taken[p.ID] = true
	}
	for step, posts := range crowded {
		inSQL, err := tx.Post.Query().Where(post.IDGTE(step), post.IDLT(step+ids.PerStep)).IDs(ctx)
		if err != nil {
			return nil, fmt.Errorf("look for free ids: %w", err)
		}
		for _, id := range inSQL {
			taken[id] = true
		}
		for _, p := range posts {
			if p.ID = freeID(taken, step, p.ID); p.ID == 0 {
				unplaced = append(unplaced, p)
				continue
			}
			taken[p.ID] = true
		}
	}
	return unplaced, nil
}

// freeID returns an id of the step that is not taken, or 0 if all are taken. It tries the ids from the
// given one to the end of the step, and then from the start of the step.
func freeID(taken map[int64]bool, step, from int64) int64 {
	for n := range int64(ids.PerStep) {
		if id := step + (from-step+n)%ids.PerStep; id > 0 && !taken[id] {
			return id
		}
	}
	return 0
}

// refuseWithoutID refuses the rows of posts without an id. It returns the other posts, and their
// positions in the list of rows.
func refuseWithoutID(newPosts []*ent.Post, positions []int, results []*Result) (withID []*ent.Post, theirs []int) {
	for n, p := range newPosts {
		if p.ID == 0 {
			results[positions[n]] = refused(refusal.New(refusal.MomentFull, "So many posts have this time that no id is free.").In("createdAt"))
			continue
		}
		withID, theirs = append(withID, p), append(theirs, positions[n])
	}
	return withID, theirs
}
