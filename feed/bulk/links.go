package bulk

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"tideline/ent"
	"tideline/ent/hiddenuser"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/feed/ids"
	"tideline/feed/internal/rows"
	"tideline/feed/mention"
	"tideline/feed/refusal"
	"tideline/internal/errs"
)

// links are the posts that a new post names. They are posts of the database, or new ones of rows
// before it, so a cycle cannot be built.
type links struct{ parent, quoted, original *ent.Post }

// all returns the posts that are set.
func (l links) all() (list []*ent.Post) {
	for _, p := range []*ent.Post{l.parent, l.quoted, l.original} {
		if p != nil {
			list = append(list, p)
		}
	}
	return list
}

// linker finds the posts that rows name.
type linker struct {
	known, newPosts map[string]*ent.Post // by external id
	originals       map[int64]*ent.Post  // of the known reposts
	links           map[*ent.Post]links  // of the new posts
	gone            map[int64]bool       // known posts that may not be named
}

// names returns the external ids of the posts that the row names.
func (p *Post) names() (list []string) {
	for _, id := range []string{p.ReplyTo, p.QuoteOf, p.RepostOf} {
		if id != "" {
			list = append(list, id)
		}
	}
	return list
}

// newLinker reads the originals of known reposts.
func newLinker(ctx context.Context, tx *ent.Tx, known map[string]*ent.Post) (*linker, error) {
	l := &linker{known, map[string]*ent.Post{}, map[int64]*ent.Post{}, map[*ent.Post]links{}, map[int64]bool{}}
	var reposted []int64
	for _, p := range known {
		if p.RepostOf != 0 {
			reposted = append(reposted, p.RepostOf)
		}
	}
	if len(reposted) == 0 {
		return l, nil
	}
	found, err := tx.Post.Query().Where(rows.Among(post.FieldID, reposted)).
		Select(post.FieldID, post.FieldAuthorID, post.FieldRootID, post.FieldParentID, post.FieldRepostOf).All(ctx)
	for _, p := range found {
		l.originals[p.ID] = p
	}
	return l, errs.Wrap(err, "find originals")
}

// named returns the post with the external id, or the original of a repost. Error: NoSuchPost.
func (l *linker) named(externalID, field string) (*ent.Post, error) {
	if externalID == "" {
		return nil, nil
	}
	p := l.newPosts[externalID]
	if p == nil {
		p = l.known[externalID]
	}
	switch {
	case p == nil:
	case p.ID == 0 && l.links[p].original != nil:
		p = l.links[p].original
	case p.RepostOf != 0:
		p = l.originals[p.RepostOf]
	}
	if p == nil || l.gone[p.ID] {
		return nil, refusal.New(refusal.NoSuchPost, "%s names no post of an earlier row or call.", field).In(field + "ExternalId")
	}
	return p, nil
}

// of returns the posts that the row names.
func (l *linker) of(row *Post) (all links, err error) {
	for _, link := range []struct {
		to         **ent.Post
		id, called string
	}{{&all.parent, row.ReplyTo, "replyTo"}, {&all.quoted, row.QuoteOf, "quoteOf"}, {&all.original, row.RepostOf, "repostOf"}} {
		if *link.to, err = l.named(link.id, link.called); err != nil {
			return links{}, err
		}
	}
	return all, nil
}

// same reports whether an existing post names the posts that the row names. A post that has been
// deleted since has no external id any longer.
func (l *linker) same(row *Post, p *ent.Post) bool {
	for _, link := range []struct {
		id  string
		has int64
	}{{row.ReplyTo, p.ParentID}, {row.QuoteOf, p.QuoteOf}, {row.RepostOf, p.RepostOf}} {
		if (link.id == "") != (link.has == 0) {
			return false
		}
		if named, _ := l.named(link.id, ""); named != nil && named.ID != link.has {
			return false
		}
	}
	return true
}

// hold locks the known posts that new posts name, in the order of ids. It notes which of them are
// deleted, or belong to users who are being deleted or will be, and so may not be named.
func (l *linker) hold(ctx context.Context, tx *ent.Tx) error {
	authors := map[int64][]int64{} // their posts
	var postIDs, authorIDs []int64
	for _, named := range l.links {
		for _, p := range named.all() {
			if p.ID != 0 && !l.gone[p.ID] {
				l.gone[p.ID] = true // until it is found
				postIDs = append(postIDs, p.ID)
				authors[p.AuthorID] = append(authors[p.AuthorID], p.ID)
			}
		}
	}
	if len(postIDs) == 0 {
		return nil
	}
	for id := range authors {
		authorIDs = append(authorIDs, id)
	}
	found, err := tx.Post.Query().Where(rows.Among(post.FieldID, sorted(postIDs)), rows.ForUpdate).Order(ent.Asc(post.FieldID)).Select(post.FieldID, post.FieldVisibility).All(ctx)
	if err != nil {
		return fmt.Errorf("lock posts: %w", err)
	}
	for _, p := range found {
		l.gone[p.ID] = p.Visibility == schema.Deleted
	}
	hidden, err := tx.HiddenUser.Query().Where(rows.Among(hiddenuser.FieldID, authorIDs), hiddenuser.StateNEQ(hiddenuser.StateSUSPENDED)).IDs(ctx)
	if err != nil {
		return fmt.Errorf("find hidden authors: %w", err)
	}
	for _, author := range hidden {
		for _, id := range authors[author] {
			l.gone[id] = true
		}
	}
	return nil
}

// reposted returns the pairs of a user and an original that the user has reposted, among the new
// reposts. The authors must be locked.
func (l *linker) reposted(ctx context.Context, b *Bulk, tx *ent.Tx) (map[pair]bool, error) {
	var pairs []pair
	for p, named := range l.links {
		if named.original != nil && named.original.ID != 0 {
			pairs = append(pairs, pair{p.AuthorID, named.original.ID})
		}
	}
	if len(pairs) == 0 {
		return nil, nil
	}
	return b.among(ctx, tx, post.Table, post.FieldAuthorID, post.FieldRepostOf, pairs)
}

// admit locks what the new posts name, and refuses the rows whose posts cannot be named any longer
// and second reposts of an original by the same user. It returns the remaining posts.
func (l *linker) admit(ctx context.Context, b *Bulk, tx *ent.Tx, list []Post, newPosts []*ent.Post, positions []int, results []*Result) ([]*ent.Post, []int, error) {
	if err := l.hold(ctx, tx); err != nil {
		return nil, nil, err
	}
	twice, err := l.reposted(ctx, b, tx)
	if err != nil {
		return nil, nil, err
	}
	type repost struct {
		author   int64
		original *ent.Post
	}
	seen, refusedBefore := map[repost]bool{}, map[*ent.Post]bool{}
	var posts []*ent.Post
	var places []int
	for n, p := range newPosts {
		row := &list[positions[n]]
		_, err := l.of(row)
		named := l.links[p]
		for _, other := range named.all() {
			if err == nil && refusedBefore[other] {
				err = refusal.New(refusal.NoSuchPost, "It names a post whose row was refused.")
			}
		}
		if o := named.original; err == nil && o != nil {
			if seen[repost{p.AuthorID, o}] || twice[pair{p.AuthorID, o.ID}] {
				err = refusal.New(refusal.OtherContent, "The author has another repost of the same post.").In("repostOfExternalId")
			}
			seen[repost{p.AuthorID, o}] = true
		}
		if err != nil {
			refusedBefore[p], results[positions[n]] = true, refused(err)
			continue
		}
		posts, places = append(posts, p), append(places, positions[n])
	}
	return posts, places, nil
}

// noEarlier returns the given time, or the time of the latest post that p names if that is later:
// nothing is answered before it is written. times has the times of the new posts before p.
func (l *linker) noEarlier(p *ent.Post, given *time.Time, times map[*ent.Post]time.Time, now time.Time) *time.Time {
	if given == nil {
		times[p] = now
		return nil
	}
	at := *given
	for _, other := range l.links[p].all() {
		of, ok := times[other]
		if !ok {
			of = ids.TimeOf(other.ID)
		}
		if at.Before(of) {
			at = of
		}
	}
	times[p] = at
	return &at
}

// set sets the ids of the named posts in the new posts, which have their own ids, and refuses rows
// that name a post that got no id.
func (l *linker) set(newPosts []*ent.Post, positions []int, results []*Result) ([]*ent.Post, []int) {
	var posts []*ent.Post
	var places []int
	for n, p := range newPosts {
		named, placed := l.links[p], true
		for _, other := range named.all() {
			placed = placed && other.ID != 0
		}
		if !placed {
			p.ID = 0
			results[positions[n]] = refused(refusal.New(refusal.NoSuchPost, "It names a post whose row was refused."))
			continue
		}
		if parent := named.parent; parent != nil {
			p.ParentID, p.ParentAuthorID, p.RootID = parent.ID, parent.AuthorID, cmp.Or(parent.RootID, parent.ID)
		}
		if named.quoted != nil {
			p.QuoteOf = named.quoted.ID
		}
		if named.original != nil {
			p.RepostOf, p.RootID = named.original.ID, named.original.RootID
		}
		posts, places = append(posts, p), append(places, positions[n])
	}
	return posts, places
}

// named are the numbers of new posts that name a post.
type named struct {
	Post    int64 `json:"a"`
	Replies int64 `json:"b"`
	Reposts int64 `json:"c"`
	Quotes  int64 `json:"d"`
}

// countNamed adds the new posts to the counters of the posts that they name, which are locked or new.
func (b *Bulk) countNamed(ctx context.Context, tx *ent.Tx, newPosts []*ent.Post) error {
	counts := map[int64]*named{}
	of := func(id int64) *named {
		if counts[id] == nil {
			counts[id] = &named{Post: id}
		}
		return counts[id]
	}
	for _, p := range newPosts {
		if p.ParentID != 0 {
			of(p.ParentID).Replies++
		}
		if p.RepostOf != 0 {
			of(p.RepostOf).Reposts++
		}
		if p.QuoteOf != 0 && !p.QuoteWithdrawn {
			of(p.QuoteOf).Quotes++
		}
	}
	if len(counts) == 0 {
		return nil
	}
	list := make([]*named, 0, len(counts))
	for _, n := range counts {
		list = append(list, n)
	}
	err := exec(ctx, tx, "UPDATE posts SET reply_count = reply_count + r.b, repost_count = repost_count + r.c, quote_count = quote_count + r.d FROM "+
		b.table("a bigint", "b bigint", "c bigint", "d bigint")+" WHERE posts.id = r.a", list)
	return errs.Wrap(err, "count replies, reposts and quotes")
}

// Mention says that a part of a post's text mentions a user.
type Mention struct {
	User       string // external id
	Start, End int    // in code points of the text
}

// newMention is a row of the insert of mentions.
type newMention struct {
	Post   int64 `json:"a"`
	User   int64 `json:"b"`
	Start  int   `json:"c"`
	End    int   `json:"d"`
	Author int64 `json:"e"`
}

// checkMentions refuses mentions that are not in the text, as package mention finds them.
func (p *Post) checkMentions() error {
	found := mention.In(p.Text)
	for _, m := range p.Mentions {
		for len(found) > 0 && (found[0].Start != m.Start || found[0].End != m.End) {
			found = found[1:]
		}
		if len(found) == 0 {
			return refusal.New(refusal.Contradiction, "The text has no mention at %d to %d of its %d characters.", m.Start, m.End, utf8.RuneCountInString(p.Text)).In("mentions")
		}
		found = found[1:]
	}
	return nil
}

// mention inserts the mentions of the new posts. A row without mentions has the mentions of the
// text, as a post that is written here. Unknown users are not mentioned.
func (b *Bulk) mention(ctx context.Context, tx *ent.Tx, issuer string, list []Post, positions []int, newPosts []*ent.Post) error {
	var externalIDs []string
	handles := map[string]bool{}
	for n, p := range newPosts {
		if given := list[positions[n]].Mentions; given != nil {
			for _, m := range given {
				externalIDs = append(externalIDs, m.User)
			}
			continue
		}
		for _, m := range mention.In(p.Text) {
			handles[m.Handle] = true
		}
	}
	if len(externalIDs)+len(handles) == 0 {
		return nil
	}
	users, err := b.acceptedUsersOf(ctx, tx, issuer, externalIDs, hiddenuser.StateSUSPENDED)
	if err != nil {
		return err
	}
	byHandle, err := b.usersCalled(ctx, tx, handles)
	if err != nil {
		return err
	}
	var given, found []newMention
	for n, p := range newPosts {
		row := list[positions[n]]
		for _, m := range row.Mentions {
			if u := users[m.User]; u != nil {
				given = append(given, newMention{p.ID, u.ID, m.Start, m.End, p.AuthorID})
			}
		}
		if row.Mentions != nil {
			continue
		}
		for _, m := range mention.In(p.Text) {
			if id := byHandle[m.Handle]; id != 0 {
				found = append(found, newMention{p.ID, id, m.Start, m.End, p.AuthorID})
			}
		}
	}
	insert := `INSERT INTO post_mentions (post_id, user_id, start, "end") SELECT r.a, r.b, r.c, r.d FROM ` +
		b.table("a bigint", "b bigint", "c bigint", "d bigint", "e bigint") + " WHERE "
	if len(given) > 0 {
		if err := exec(ctx, tx, insert+"TRUE", given); err != nil {
			return fmt.Errorf("create mentions: %w", err)
		}
	}
	if len(found) == 0 {
		return nil
	}
	err = exec(ctx, tx, insert+"NOT EXISTS (SELECT 1 FROM blocks k WHERE k.blocker_id = r.e AND k.blocked_id = r.b)"+
		" AND NOT EXISTS (SELECT 1 FROM blocks k WHERE k.blocker_id = r.b AND k.blocked_id = r.e)", found)
	return errs.Wrap(err, "create mentions")
}

// usersCalled returns the users with the handles as acceptedUsersOf does, also suspended ones, by
// handle.
func (b *Bulk) usersCalled(ctx context.Context, tx *ent.Tx, handles map[string]bool) (map[string]int64, error) {
	if len(handles) == 0 {
		return nil, nil
	}
	type row struct {
		Handle string `json:"a"`
	}
	var list []row
	for handle := range handles {
		list = append(list, row{handle})
	}
	data, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	found, err := tx.QueryContext(ctx, "SELECT u.id, u.handle FROM "+b.table("a text")+" JOIN users u ON u.handle = r.a"+
		" LEFT JOIN hidden_users h ON h.id = u.id WHERE h.id IS NULL OR h.state = '"+string(hiddenuser.StateSUSPENDED)+"'", string(data))
	if err != nil {
		return nil, fmt.Errorf("find mentioned users: %w", err)
	}
	defer found.Close()
	byHandle := map[string]int64{}
	for found.Next() {
		var id int64
		var handle string
		if err := found.Scan(&id, &handle); err != nil {
			return nil, fmt.Errorf("find mentioned users: %w", err)
		}
		byHandle[handle] = id
	}
	return byHandle, errs.Wrap(found.Err(), "find mentioned users")
}

// cleanLinks checks the fields that say which posts the row names.
func (p *Post) cleanLinks() error {
	for _, id := range p.names() {
		if err := checkID(id); err != nil {
			return err
		}
	}
	own := p.ReplyAudience != nil || p.QuoteAudience != nil
	switch {
	case p.ReplyTo != "" && own:
		return refusal.New(refusal.Contradiction, "A reply has the audiences of its root.").In("replyAudience")
	case p.RepostOf != "" && (strings.TrimSpace(p.Text) != "" || p.Data != nil || p.ReplyTo != "" || p.QuoteOf != "" || own || len(p.Mentions) > 0):
		return refusal.New(refusal.Contradiction, "A repost has nothing of its own except its author, visibility and time.").In("repostOfExternalId")
	}
	return nil
}

// scanLinks scans the columns of a known post that name others.
func scanLinks(row *sql.Rows, p *ent.Post, into ...any) error {
	return row.Scan(append(into, &p.ParentID, &p.RootID, &p.RepostOf, &p.QuoteOf)...)
}

// linkColumns are the columns that scanLinks scans.
const linkColumns = ", coalesce(p.parent_id, 0), coalesce(p.root_id, 0), coalesce(p.repost_of, 0), coalesce(p.quote_of, 0)"
