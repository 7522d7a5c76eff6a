package visibility

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tideline/ent"
	"tideline/ent/follow"
	"tideline/ent/hiddenuser"
	"tideline/ent/mutedconversation"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/internal/errs"
	"tideline/timeline"
)

// This file is about the base of a post: the post that must be visible for it to be visible. The
// base of a reply is the root of its conversation. The base of a repost is its original and, if the
// original is a reply, its root, too. What the rule needs to know of a base is read for one viewer after
// the post (addBases), or together with it if the process already knows which posts are the bases
// (readWithBases); and together with the post for many viewers (dependsOn). All write it into the same
// higher bits of the post's flags.

// The bits of a Relation that belong to the root and to the original begin here.
const (
	rootShift     = 24
	originalShift = rootShift + baseBits
	baseBits      = 18
)

// The flags of a base, beside the relation of the viewer to its author.
const (
	wrote     Relation = 1 << (edgeBits + 1 + iota) // the viewer wrote the base
	addressed                                       // the viewer wrote the parent of the base
	seenBy                                          // the lowest bit of the number of the base's visibility
)

// The numbers of the visibilities of a base. The entries of readers have the numbers from baseReaders
// on, in their order.
const (
	baseGone   = iota
	baseHidden // by a moderator
	basePrivate
	baseReaders
)

// baseVisibility returns the visibility that was read of a base.
func baseVisibility(r Relation) schema.Visibility {
	switch code := int(r / seenBy); code {
	case baseGone:
		return schema.Deleted
	case baseHidden:
		return schema.HiddenPrivate
	case basePrivate:
		return schema.Private
	default:
		return readers[code-baseReaders].visibility
	}
}

// root returns what was read of the root.
func (r Relation) root() Relation { return r >> rootShift & (1<<baseBits - 1) }

// original returns what was read of a repost's original.
func (r Relation) original() Relation { return r >> originalShift & (1<<baseBits - 1) }

// hiddenWithBase returns why a reply or a repost is hidden because of its base, or "".
func hiddenWithBase(on Surface, r Relation, p *ent.Post) string {
	if on == Inbox {
		return ""
	}
	root, original := r.root(), r.original()
	if p.RepostOf != 0 {
		if why := hiddenBase(on, original, original.Has(addressed) || root.Has(wrote)); why != "" {
			return "it is a repost whose original is hidden: " + why
		}
		if original.Has(wrote) {
			return ""
		}
	}
	if p.RootID != 0 {
		if why := hiddenBase(on, root, false); why != "" {
			return "it belongs to a conversation whose first post is hidden: " + why
		}
	}
	return ""
}

// hiddenBase is the rule for a base. answersViewer is as in hiddenByVisibility.
func hiddenBase(on Surface, r Relation, answersViewer bool) string {
	v := baseVisibility(r)
	switch {
	case v == schema.Deleted:
		return "it is gone"
	case r.Has(Hidden):
		return "the author's account is hidden"
	case r.Has(wrote):
		return ""
	}
	if why := hiddenByEdge(on, 0, r); why != "" {
		return why
	}
	return hiddenByVisibility(r, v, answersViewer)
}

// addBases reads the bases of the posts that are replies or reposts, and adds them to the posts, which were
// read for the viewer. It remembers which posts they are, for byKey.
//
// Cost: none if no post is either; otherwise one query by primary key, with a look-up for each author who
// was replied to and for each root. The query of all posts does none of this: it would prepare for it on
// pages that have neither. With the bases in it, such a page cost twice as much, and with the preferences 8 to
// 10 % more; without both it costs what it did before there were replies (BenchmarkHomePage).
func (r *Reader) addBases(ctx context.Context, in querier, viewer int64, list []*ent.Post, with Fields) error {
	var of dependence
	for _, p := range list {
		of.add(linksOf(p))
	}
	if len(of.posts) == 0 {
		return nil
	}
	found, known, err := r.scanBases(ctx, in, viewer, of.posts, of.repliedTo, with)
	if err != nil {
		return fmt.Errorf("read roots and originals: %w", err)
	}
	for _, p := range found {
		known.posts[p.ID] = p
	}
	for _, p := range list {
		known.addTo(p)
		if l := linksOf(p); l != (links{}) {
			r.links.Put(p.ID, l, linkBytes)
		}
	}
	return nil
}

const (
	// linksBytes bounds the memory of Reader.links: the 60,000 replies and reposts that were read last.
	linksBytes = 8 << 20
	linkBytes  = 140
)

// links are what a reply or a repost depends on: the posts, and the author of the parent. They are zero for
// other posts. They stay the same, except that the id of a deleted user is removed.
type links struct{ root, original, repliedTo int64 }

func linksOf(p *ent.Post) links {
	l := links{root: p.RootID, original: p.RepostOf}
	if p.ParentID != 0 {
		l.repliedTo = p.ParentAuthorID
	}
	return l
}

// knownLinks returns the remembered links of posts, by post. It returns nil if none of the posts has any.
func (r *Reader) knownLinks(ids []int64) (known map[int64]links) {
	for i, id := range ids {
		if l, ok := r.links.Get(id); ok {
			if known == nil {
				known = make(map[int64]links, len(ids)-i)
			}
			known[id] = l
		}
	}
	return known
}

// dependence lists the ids of the posts that the posts of a page depend on, and of the authors of their parents.
type dependence struct{ posts, repliedTo []int64 }

func (d *dependence) add(l links) {
	for _, id := range [2]int64{l.root, l.original} {
		if id != 0 {
			d.posts = append(d.posts, id)
		}
	}
	if l.repliedTo != 0 {
		d.repliedTo = append(d.repliedTo, l.repliedTo)
	}
}

// readWithBases reads the posts of the ids, in any order, and in the same query the bases that their known links
// name. A second query reads the bases of posts whose links were unknown or have changed.
func (r *Reader) readWithBases(ctx context.Context, viewer int64, ids []int64, known map[int64]links, with Fields) ([]*ent.Post, error) {
	all, asked := dependence{posts: slices.Clone(ids)}, make(map[int64]bool, len(ids))
	for _, id := range ids {
		all.add(known[id])
		asked[id] = true
	}
	found, bases, err := r.scanBases(ctx, r.db, viewer, all.posts, all.repliedTo, with)
	if err != nil {
		return nil, fmt.Errorf("read posts with their roots and originals: %w", err)
	}
	list := make([]*ent.Post, 0, len(ids))
	for _, p := range found {
		base := p
		if asked[p.ID] {
			list = append(list, p)
			same := *p // as a base, it has no flags of its own base; both share the author and the data
			base = &same
		}
		bases.posts[p.ID] = base
	}
	var others []*ent.Post
	for _, p := range list {
		if linksOf(p) != known[p.ID] {
			others = append(others, p)
			continue
		}
		bases.addTo(p)
	}
	if err := r.addBases(ctx, r.db, viewer, others, with); err != nil {
		return nil, err
	}
	for _, p := range list {
		keepWords(p, bases.words)
	}
	return list, nil
}

// bases are posts that others depend on, as they were read for a viewer, with the viewer's wishes.
type bases struct {
	viewer int64
	posts  map[int64]*ent.Post
	wishes wishes
	words  string // the viewer's muted words
}

// scanBases reads posts for a viewer, together with the viewer's wishes that concern conversations of these
// posts and replies to the users in repliedTo. The caller adds the posts to
// of.posts: a post of the page as a copy, because the page's own gets flags that a base must not have.
func (r *Reader) scanBases(ctx context.Context, in querier, viewer int64, ids, repliedTo []int64, with Fields) (list []*ent.Post, of bases, err error) {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	query, args := r.anonymous[with], []any{viewer, rows.List(r.dialect, ids)}
	if viewer != 0 {
		query, args = r.bases[with], append(args, rows.List(r.dialect, repliedTo))
	}
	list, text, err := r.scan(ctx, in, len(ids), with, query, args...)
	if err != nil {
		return nil, of, err
	}
	of = bases{viewer: viewer, posts: make(map[int64]*ent.Post, len(list))}
	text, of.words, _ = strings.Cut(text, betweenWords)
	of.wishes, err = parseWishes(viewer, text)
	return list, of, err
}

// addTo adds what the rule needs of the bases to a reply or a repost, and the viewer's wishes for replies
// and conversations. It sets the post's Original and OriginalText. Other posts stay as they are.
func (b *bases) addTo(p *ent.Post) {
	root := int64(ofBase(b.viewer, b.posts[p.RootID]) << rootShift)
	p.ForViewer |= root | int64(b.wishes.of(p))
	if original := b.posts[p.RepostOf]; original != nil {
		p.ForViewer |= int64(ofBase(b.viewer, original) << originalShift)
		p.OriginalText = original.Text
		original.ForViewer |= root // it is a reply in the same conversation, or there is no root
		if b.viewer != 0 && mayShow(Direct, b.viewer, Relation(original.ForViewer), original) {
			p.Original = original
		}
	}
}

// wishes are a viewer's wishes that concern replies and conversations.
type wishes struct {
	replies   Relation       // the flags of the viewer's HomeReplies
	repliedTo map[int64]bool // the authors of parents that the viewer follows, and the viewer
	muted     map[int64]bool // the roots of conversations that the viewer mutes
}

// wishesOf returns the SQL expression of a viewer's wishes, for parseWishes. The database computes it once
// per statement. Its parameters are the viewer, the posts that may be roots, and the authors of parents.
func wishesOf(of string) string {
	list := func(column, from string) string {
		return "coalesce((SELECT string_agg(CAST(r." + column + " AS TEXT), ',') FROM " + from + "), '')"
	}
	return fmt.Sprintf("coalesce((SELECT r.%s FROM %s r WHERE r.%s = $1), '')", user.FieldHomeReplies, user.Table, user.FieldID) + " || ' ' || " +
		list(follow.FieldFolloweeID, fmt.Sprintf("%s r WHERE r.%s = $1 AND r.%s %s", follow.Table, follow.FieldFollowerID, follow.FieldFolloweeID, rows.In(of, "$3", "bigint"))) +
		" || ' ' || " + list(mutedConversation.other, fmt.Sprintf("%s r WHERE r.%s = $1 AND r.%s %s", mutedConversation.table, mutedConversation.viewer, mutedConversation.other, rows.In(of, "$2", "bigint")))
}

// parseWishes parses the text of wishesOf. The text is empty for an anonymous viewer, who has no
// wishes, and if all bases are gone, so that nobody is shown the posts.
func parseWishes(viewer int64, text string) (w wishes, err error) {
	parts := strings.Split(text, " ")
	if len(parts) != 3 {
		return wishes{}, nil
	}
	switch schema.HomeReplies(parts[0]) {
	case schema.AllReplies:
		w.replies = allReplies
	case schema.NoReplies:
		w.replies = noReplies
	}
	if w.repliedTo, err = idSet(parts[1]); err == nil {
		w.repliedTo[viewer] = true
		w.muted, err = idSet(parts[2])
	}
	return w, err
}

// idSet parses ids that are separated by commas.
func idSet(text string) (map[int64]bool, error) {
	set := map[int64]bool{}
	for id := range strings.SplitSeq(text, ",") {
		if id == "" {
			continue
		}
		n, err := strconv.ParseInt(id, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read what the viewer follows and mutes: %w", err)
		}
		set[n] = true
	}
	return set, nil
}

// of returns the flags of the wishes that concern a post.
func (w wishes) of(p *ent.Post) (flags Relation) {
	if p.ParentID != 0 {
		flags = w.replies
		if w.repliedTo[p.ParentAuthorID] {
			flags |= FollowsParent
		}
	}
	if p.RootID != 0 && w.muted[p.RootID] {
		flags |= mutesConversation
	}
	return flags
}

// ofBase returns the flags of a base that was read for the viewer. They are 0 if it is gone.
func ofBase(viewer int64, base *ent.Post) Relation {
	if base == nil {
		return 0
	}
	r := Relation(base.ForViewer)&(1<<edgeBits-1|Hidden) | codeOf(base.Visibility)
	if viewer != 0 && base.AuthorID == viewer {
		r |= wrote
	}
	if viewer != 0 && base.ParentAuthorID == viewer {
		r |= addressed
	}
	return r
}

// codeOf returns the number of a base's visibility, in the bits of seenBy.
func codeOf(v schema.Visibility) Relation {
	switch v {
	case schema.Deleted:
		return baseGone * seenBy
	case schema.Private:
		return basePrivate * seenBy
	}
	for i, r := range readers {
		if r.visibility == v {
			return Relation(baseReaders+i) * seenBy
		}
	}
	return baseHidden * seenBy
}

// dependsOn returns the SQL expression of the flags of a reply or a repost that concern other posts, for
// statements whose rows are the viewers: the flags that bases.addTo adds, and the flags of wantsReply and
// mutesRoot. It is 0 for any other post.
//
// Cost: none for a post that is neither. For each base, one look-up by key and the look-ups of its
// author; for a reply the cost of wantsReply; for a post with a root that of mutesRoot.
func dependsOn(viewer, post string) string {
	return fmt.Sprintf("CASE WHEN %[1]s.root_id IS NULL THEN 0 ELSE %[2]d * %[3]s END + CASE WHEN %[1]s.repost_of IS NULL THEN 0 ELSE %[4]d * %[5]s END",
		post, int64(1)<<rootShift, baseOf(viewer, post+".root_id"), int64(1)<<originalShift, baseOf(viewer, post+".repost_of")) +
		" + " + wantsReply(viewer, post) + " + " + mutesRoot(viewer, post)
}

// mutedConversation sets a flag for a viewer and the root of a conversation that the viewer mutes.
var mutedConversation = edge{flag: mutesConversation, table: mutedconversation.Table, viewer: mutedconversation.FieldUserID, other: mutedconversation.FieldRootID}

// mutesRoot returns the SQL expression of the flag that says that the viewer mutes the conversation of a
// post. It is 0 for a post without a root.
//
// Cost: none for such a post; otherwise one look-up.
func mutesRoot(viewer, post string) string {
	return "CASE WHEN " + post + ".root_id IS NULL THEN 0 ELSE " + mutedConversation.look(viewer, post+".root_id") + " END"
}

// wantsReply returns the SQL expression of the flags that say whether the viewer wants a reply in the home
// timeline: FollowsParent, and the flags of the viewer's HomeReplies. It is 0 for a post that is not a reply.
//
// Cost: none for such a post; otherwise two look-ups.
func wantsReply(viewer, post string) string {
	return fmt.Sprintf("CASE WHEN %[1]s.parent_id IS NULL THEN 0 ELSE"+
		" CASE WHEN %[1]s.parent_author_id = %[2]s THEN %[3]d ELSE coalesce((SELECT %[3]d FROM %[4]s r WHERE r.%[5]s = %[2]s AND r.%[6]s = %[1]s.parent_author_id), 0) END"+
		" + coalesce((SELECT CASE r.%[7]s WHEN '%[8]s' THEN %[9]d WHEN '%[10]s' THEN %[11]d ELSE 0 END FROM %[12]s r WHERE r.%[13]s = %[2]s), 0) END",
		post, viewer, FollowsParent, follow.Table, follow.FieldFollowerID, follow.FieldFolloweeID,
		user.FieldHomeReplies, schema.AllReplies, allReplies, schema.NoReplies, noReplies, user.Table, user.FieldID)
}

// baseOf returns the SQL expression of the flags of ofBase, for the base with the id.
func baseOf(viewer, id string) string {
	var codes strings.Builder
	code := func(v schema.Visibility) { fmt.Fprintf(&codes, " WHEN '%s' THEN %d", v, codeOf(v)) }
	code(schema.Deleted)
	code(schema.Private)
	for _, r := range readers {
		code(r.visibility)
	}
	flags := fmt.Sprintf("CASE q.visibility%s ELSE %d END", codes.String(), baseHidden*seenBy) +
		fmt.Sprintf(" + coalesce((SELECT %d FROM %s r WHERE r.%s = q.%s), 0)", Hidden, hiddenuser.Table, hiddenuser.FieldID, fieldAuthor) +
		fmt.Sprintf(" + CASE WHEN q.%[1]s = %[2]s THEN %[3]d ELSE 0 END + CASE WHEN q.parent_author_id = %[2]s THEN %[4]d ELSE 0 END + ", fieldAuthor, viewer, wrote, addressed) +
		lookUps(ofRule(), viewer, "q."+fieldAuthor, func(e edge) string {
			if e.hides == 0 {
				return "q.visibility IN (" + e.visibilities() + ")"
			}
			return ""
		})
	return "coalesce((SELECT CAST(" + flags + " AS bigint) FROM posts q WHERE q.id = " + id + "), 0)"
}

// mutableText returns the text whose words the viewer may mute: of a repost, the original's.
func mutableText(p *ent.Post) string {
	if p.RepostOf != 0 {
		return p.OriginalText
	}
	return p.Text
}

// InAudience reports whether a user is in an audience of a post by another user. r is the user's
// relation to the author, and mentioned says that the post mentions the user; each need be known only
// for an audience that depends on it.
func InAudience(a schema.Audience, r Relation, mentioned bool) bool {
	switch a {
	case "", schema.Everyone:
		return true
	case schema.OnlyFollowers:
		return r.Has(Following)
	case schema.OnlyMutuals:
		return r.Has(Mutual)
	case schema.OnlyMentioned:
		return mentioned
	}
	return false
}

// DependsOnOthers reports whether a change of another post can hide or show p: whether p is a reply
// or a repost.
func DependsOnOthers(p *ent.Post) bool { return p.ParentID != 0 || p.RepostOf != 0 }

// PullsDependentOn reports whether the newest posts that belong in the user's inbox, at most limit,
// have a reply or repost that the user's relation to the author can hide or show: one whose root,
// original or parent the author wrote.
//
// Cost: as PulledIDs, and one query with some look-ups a post.
func (r *Reader) PullsDependentOn(ctx context.Context, user, author int64, limit int) (bool, error) {
	b, err := r.PulledIDs(user)(ctx, user, timeline.Range{Limit: limit})
	if err != nil || len(b.posts) == 0 {
		return false, err
	}
	found, err := rows.IDs(ctx, r.db, "SELECT p.id FROM posts p WHERE p.id "+rows.In(r.dialect, "$1", "bigint")+" AND (p.parent_author_id = $2"+
		" OR EXISTS (SELECT 1 FROM posts q WHERE q.id = p.root_id AND q.author_id = $2) OR EXISTS (SELECT 1 FROM posts q WHERE q.id = p.repost_of AND q.author_id = $2)) LIMIT 1",
		rows.List(r.dialect, rows.PostIDs(b.posts)), author)
	return len(found) > 0, errs.Wrap(err, "look for replies and reposts")
}

// WroteOriginal reports whether the viewer wrote the original of the repost p, or p itself if it is no repost.
// The post must have been read for the viewer.
func WroteOriginal(p *ent.Post, viewer int64) bool {
	if p.RepostOf != 0 {
		return Relation(p.ForViewer).original().Has(wrote)
	}
	return p.AuthorID == viewer
}
