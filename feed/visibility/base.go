package visibility

import (
	"context"
	"fmt"
	"strings"

	"tideline/ent"
	"tideline/ent/follow"
	"tideline/ent/hiddenuser"
	"tideline/ent/mutedconversation"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/timeline"
)

// This file is about the base of a post: the post that must be visible for it to be visible. The
// base of a reply is the root of its conversation. The base of a repost is its original and, if the
// original is a reply, its root, too. What the rule needs to know of a base is read together with
// the post, into higher bits of the same number.

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
			return "it is a repost, and of the original: " + why
		}
		if original.Has(wrote) {
			return ""
		}
	}
	if p.RootID != 0 {
		if why := hiddenBase(on, root, false); why != "" {
			return "it belongs to a conversation, and of its first post: " + why
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

// mutedConversation sets a flag for a viewer and the root of a conversation that the viewer mutes.
var mutedConversation = edge{flag: mutesConversation, table: mutedconversation.Table, viewer: mutedconversation.FieldUserID, other: mutedconversation.FieldRootID}

// dependsOn returns the SQL expression of the flags of a reply or a repost that concern other posts:
// those of its bases, what the viewer's HomeReplies needs, and whether the viewer mutes its
// conversation. It is 0 for any other post. viewer is an SQL expression, or "" for an anonymous viewer.
// few says that the statement has one viewer.
//
// Cost: none for a post that is neither. For each base, one look-up by key and the look-ups of its
// author; for a reply a look-up of the viewer's relation to the parent's author; for a post with a root
// a look-up of the conversation, if the viewer mutes any or if few is false.
func dependsOn(viewer, post string, few bool) string {
	flags := fmt.Sprintf("CASE WHEN %[1]s.root_id IS NULL THEN 0 ELSE %[2]d * %[3]s END + CASE WHEN %[1]s.repost_of IS NULL THEN 0 ELSE %[4]d * %[5]s END",
		post, int64(1)<<rootShift, baseOf(viewer, post+".root_id", few), int64(1)<<originalShift, baseOf(viewer, post+".repost_of", few))
	if viewer == "" {
		return flags
	}
	muted := post + ".root_id IS NOT NULL"
	if few {
		muted += " AND " + mutedConversation.anyOf(mutedConversation.viewer, viewer)
	}
	flags += " + CASE WHEN " + muted + " THEN " + mutedConversation.look(viewer, post+".root_id") + " ELSE 0 END"
	return flags + fmt.Sprintf(" + CASE WHEN %[1]s.parent_id IS NULL THEN 0 ELSE"+
		" CASE WHEN %[1]s.parent_author_id = %[2]s THEN %[3]d ELSE coalesce((SELECT %[3]d FROM %[4]s r WHERE r.%[5]s = %[2]s AND r.%[6]s = %[1]s.parent_author_id), 0) END"+
		" + coalesce((SELECT CASE r.%[7]s WHEN '%[8]s' THEN %[9]d WHEN '%[10]s' THEN %[11]d ELSE 0 END FROM %[12]s r WHERE r.%[13]s = %[2]s), 0) END",
		post, viewer, FollowsParent, follow.Table, follow.FieldFollowerID, follow.FieldFolloweeID,
		user.FieldHomeReplies, schema.AllReplies, allReplies, schema.NoReplies, noReplies, user.Table, user.FieldID)
}

// baseOf returns the SQL expression of the flags of the viewer and the base with the id.
func baseOf(viewer, id string, few bool) string {
	var codes strings.Builder
	number := func(v schema.Visibility, code int) {
		fmt.Fprintf(&codes, " WHEN '%s' THEN %d", v, Relation(code)*seenBy)
	}
	number(schema.Deleted, baseGone)
	number(schema.Private, basePrivate)
	for i, r := range readers {
		number(r.visibility, baseReaders+i)
	}
	flags := fmt.Sprintf("CASE q.visibility%s ELSE %d END", codes.String(), baseHidden*seenBy) +
		fmt.Sprintf(" + coalesce((SELECT %d FROM %s r WHERE r.%s = q.%s), 0)", Hidden, hiddenuser.Table, hiddenuser.FieldID, fieldAuthor)
	if viewer != "" {
		flags += fmt.Sprintf(" + CASE WHEN q.%[1]s = %[2]s THEN %[3]d ELSE 0 END + CASE WHEN q.parent_author_id = %[2]s THEN %[4]d ELSE 0 END + ", fieldAuthor, viewer, wrote, addressed) +
			lookUps(ofBase(), viewer, "q."+fieldAuthor, func(e edge) string {
				switch {
				case e.hides == 0:
					return "q.visibility IN (" + e.visibilities() + ")"
				case few:
					return e.anyOf(e.viewer, viewer)
				}
				return ""
			})
	}
	return "coalesce((SELECT CAST(" + flags + " AS bigint) FROM posts q WHERE q.id = " + id + "), 0)"
}

// ofBase returns the edges that the rule needs for a base.
func ofBase() (list []edge) {
	for _, e := range edges {
		if e.hides != 0 || e.visibilities() != "" {
			list = append(list, e)
		}
	}
	return list
}

// columnOriginalText names the additional column in a query of posts.
const columnOriginalText = "original_text"

// mutableText returns the text whose words the viewer may mute: of a repost, the original's.
func mutableText(p *ent.Post) string {
	if p.RepostOf != 0 {
		return p.OriginalText
	}
	return p.Text
}

// originalText returns the SQL expression of Post.OriginalText.
func originalText(post string) string {
	return "CASE WHEN " + post + ".repost_of IS NULL THEN '' ELSE coalesce((SELECT q.text FROM posts q WHERE q.id = " + post + ".repost_of), '') END"
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
	return len(found) > 0, rows.Wrap("look for replies and reposts", err)
}

// WroteBase reports whether the viewer, for whom p was read, wrote p or, if p is a repost, its
// original.
func WroteBase(p *ent.Post, viewer int64) bool {
	if p.RepostOf != 0 {
		return Relation(p.ForViewer).original().Has(wrote)
	}
	return p.AuthorID == viewer
}
