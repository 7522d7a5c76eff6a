package account

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"tideline/ent"
	"tideline/ent/block"
	"tideline/ent/follow"
	"tideline/ent/followrequest"
	"tideline/ent/like"
	"tideline/ent/mute"
	"tideline/ent/mutedconversation"
	"tideline/ent/mutedword"
	"tideline/ent/post"
	"tideline/ent/postmention"
	"tideline/ent/postversion"
	"tideline/ent/report"
	"tideline/ent/schema"
	"tideline/ent/session"
	"tideline/ent/user"
	"tideline/feed/ids"
	"tideline/feed/internal/rows"
	"tideline/feed/refusal"
	"tideline/feed/visibility"
	"tideline/internal/errs"
)

// exportPage is how many rows are in memory at a time. A post may have tens of kilobytes of text and data.
const exportPage = 100

// Export writes all data of a user to w, as one JSON object per line. Each has a type: user,
// session, post, version, like, follow, follower, request, requester, block, mute, mutedWord,
// mutedConversation or report. Of other users it contains only the handle and the id. Likes and reposts of posts that
// the user may not see now are left out, since they would tell a hidden post from a deleted one. It is not a snapshot:
// rows are read one page after another. Error: NotFound.
//
// Cost: up to six queries for each hundred rows. A hundred rows are in memory at a time.
func (a *Accounts) Export(ctx context.Context, id int64, w io.Writer) error {
	db := a.cfg.DB
	u, err := db.User.Get(ctx, id)
	if ent.IsNotFound(err) {
		return refusal.ErrNoSuchUser
	}
	if err != nil {
		return fmt.Errorf("find user: %w", err)
	}
	data, err := rows.UserData(ctx, db.UserData, []int64{id})
	if err != nil {
		return err
	}
	x := exporter{db, a.cfg.Visibility, id, json.NewEncoder(w)}
	profile := map[string]any{
		"type": "user", "id": u.NodeID(), "handle": u.Handle, "name": u.Name, "bio": u.Bio, "createdAt": u.CreatedAt.UTC(),
		"approvesFollowers": u.ApprovesFollowers, "avatarUrl": u.AvatarURL, "links": u.LinkList(), "data": json.RawMessage(*data[0]), "defaultVisibility": u.DefaultVisibility, "homeReplies": u.HomeReplies,
	}
	if u.Issuer != nil {
		profile["issuer"], profile["externalId"] = *u.Issuer, string(u.ExternalID)
	}
	marker, err := db.ReadMarker.Get(ctx, id)
	if err == nil {
		profile["readUpTo"] = ent.NodeID("Post", marker.PostID)
	} else if !ent.IsNotFound(err) {
		return fmt.Errorf("find read marker: %w", err)
	}
	if err := x.to.Encode(profile); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{x.sessions, x.posts, x.versions, x.likes, x.relations, x.words, x.conversations, x.reports} {
		if err := part(ctx); err != nil {
			return fmt.Errorf("export user: %w", err)
		}
	}
	return nil
}

// exporter writes the parts of an Export.
type exporter struct {
	db      *ent.Client
	visible *visibility.Reader
	user    int64
	to      *json.Encoder
}

// seen returns which of the posts the user may see now. Ids of no post do not matter.
func (x exporter) seen(ctx context.Context, ids []int64) (map[int64]bool, error) {
	posts, err := x.visible.Posts(ctx, visibility.Direct, x.user, ids, visibility.Bare)
	seen := map[int64]bool{}
	for _, p := range posts {
		if p != nil {
			seen[p.ID] = true
		}
	}
	return seen, errs.Wrap(err, "find visible posts")
}

// exportAll writes all rows that page finds, in ascending order of their ids. It calls page again
// with the last id of the page before.
func exportAll[T any](ctx context.Context, to *json.Encoder, page func(ctx context.Context, after int64) ([]T, error), line func(T) (id int64, fields map[string]any)) error {
	var after int64
	for {
		list, err := page(ctx, after)
		if err != nil {
			return err
		}
		for _, row := range list {
			var fields map[string]any
			if after, fields = line(row); fields == nil {
				continue
			}
			if err := to.Encode(fields); err != nil {
				return err
			}
		}
		if len(list) < exportPage {
			return nil
		}
	}
}

func (x exporter) sessions(ctx context.Context) error {
	return exportAll(ctx, x.to, func(ctx context.Context, after int64) ([]*ent.Session, error) {
		return x.db.Session.Query().Where(session.UserID(x.user), session.IDGT(after)).Order(ent.Asc(session.FieldID)).Limit(exportPage).All(ctx)
	}, func(s *ent.Session) (int64, map[string]any) {
		return s.ID, map[string]any{"type": "session", "createdAt": s.CreatedAt.UTC(), "expiresAt": s.ExpiresAt.UTC(), "userAgent": s.UserAgent}
	})
}

// exportedMention is a mention in a post.
type exportedMention struct {
	User   string `json:"user"`
	Handle string `json:"handle"`
	Start  int    `json:"start"` // in code points of the text
	End    int    `json:"end"`
}

// posts writes the user's posts, including replies, quotes, and reposts of posts that the user may see.
// Replies and quotes name other posts by their ids, whether these still exist or not.
func (x exporter) posts(ctx context.Context) error {
	var mentions map[int64][]exportedMention // by post
	var seen map[int64]bool                  // the originals of reposts
	return exportAll(ctx, x.to, func(ctx context.Context, after int64) ([]*ent.Post, error) {
		posts, err := x.db.Post.Query().Where(post.AuthorID(x.user), post.VisibilityNEQ(schema.Deleted), post.IDGT(after), rows.WithCounts).
			Order(ent.Asc(post.FieldID)).Limit(exportPage).All(ctx)
		if err != nil {
			return nil, err
		}
		data, err := rows.PostData(ctx, x.db.PostData, rows.PostIDs(posts))
		if err != nil {
			return nil, err
		}
		for i := range data {
			posts[i].Data = data[i]
		}
		if mentions, err = x.mentions(ctx, rows.PostIDs(posts)); err != nil {
			return nil, err
		}
		seen, err = x.seen(ctx, rows.Map(posts, func(p *ent.Post) int64 { return p.RepostOf }))
		return posts, err
	}, func(p *ent.Post) (int64, map[string]any) {
		if p.RepostOf != 0 && !seen[p.RepostOf] {
			return p.ID, nil
		}
		line := map[string]any{
			"type": "post", "id": p.NodeID(), "createdAt": ids.TimeOf(p.ID).UTC(), "text": p.Text, "data": json.RawMessage(*p.Data), "editedAt": p.Edited(), "visibility": p.Visibility.Shown(), "hiddenByModerators": p.HiddenByModerators(),
			"likeCount": p.LikeCount, "replyCount": p.ReplyCount, "repostCount": p.RepostCount, "quoteCount": p.QuoteCount,
		}
		for name, id := range map[string]int64{"replyTo": p.ParentID, "root": p.RootID, "repostOf": p.RepostOf, "quoteOf": p.QuoteOf} {
			if id != 0 {
				line[name] = ent.NodeID("Post", id)
			}
		}
		if p.QuoteOf != 0 {
			line["quoteWithdrawn"] = p.QuoteWithdrawn
		}
		if p.ParentID == 0 && p.RepostOf == 0 {
			line["replyAudience"], line["quoteAudience"] = cmp.Or(p.ReplyAudience, schema.Everyone), cmp.Or(p.QuoteAudience, schema.Everyone)
		}
		if list := mentions[p.ID]; list != nil {
			line["mentions"] = list
		}
		return p.ID, line
	})
}

// mentions returns the mentions in the posts. It leaves out mentions of hidden users.
func (x exporter) mentions(ctx context.Context, posts []int64) (map[int64][]exportedMention, error) {
	found, err := x.db.PostMention.Query().Where(rows.Among(postmention.FieldPostID, posts)).
		Order(ent.Asc(postmention.FieldPostID, postmention.FieldStart)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("find mentions: %w", err)
	}
	users := rows.Map(found, func(m *ent.PostMention) int64 { return m.UserID })
	people, err := x.db.User.Query().Where(rows.Among(user.FieldID, users), user.Hidden(false)).Select(user.FieldID, user.FieldHandle).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("find mentioned users: %w", err)
	}
	handles := map[int64]string{}
	for _, u := range people {
		handles[u.ID] = u.Handle
	}
	mentions := map[int64][]exportedMention{}
	for _, m := range found {
		if handle, shown := handles[m.UserID]; shown {
			mentions[m.PostID] = append(mentions[m.PostID], exportedMention{ent.NodeID("User", m.UserID), handle, m.Start, m.End})
		}
	}
	return mentions, nil
}

// versions writes the earlier versions of the user's posts.
func (x exporter) versions(ctx context.Context) error {
	return exportAll(ctx, x.to, func(ctx context.Context, after int64) ([]*ent.PostVersion, error) {
		return x.db.PostVersion.Query().Where(postversion.IDGT(after), postversion.HasPostWith(post.AuthorID(x.user), post.VisibilityNEQ(schema.Deleted))).
			Order(ent.Asc(postversion.FieldID)).Limit(exportPage).All(ctx)
	}, func(v *ent.PostVersion) (int64, map[string]any) {
		return v.ID, map[string]any{"type": "version", "post": ent.NodeID("Post", v.PostID), "text": v.Text, "data": json.RawMessage(v.Data), "writtenAt": v.Written().UTC()}
	})
}

// likes writes the user's likes of posts that the user may see.
func (x exporter) likes(ctx context.Context) error {
	var seen map[int64]bool
	return exportAll(ctx, x.to, func(ctx context.Context, after int64) ([]*ent.Like, error) {
		likes, err := x.db.Like.Query().Where(like.UserID(x.user), like.IDGT(after)).Order(ent.Asc(like.FieldID)).Limit(exportPage).All(ctx)
		if err != nil {
			return nil, err
		}
		seen, err = x.seen(ctx, rows.Map(likes, func(l *ent.Like) int64 { return l.PostID }))
		return likes, err
	}, func(l *ent.Like) (int64, map[string]any) {
		if !seen[l.PostID] {
			return l.ID, nil
		}
		return l.ID, map[string]any{"type": "like", "post": ent.NodeID("Post", l.PostID)}
	})
}

func (x exporter) words(ctx context.Context) error {
	return exportAll(ctx, x.to, func(ctx context.Context, after int64) ([]*ent.MutedWord, error) {
		return x.db.MutedWord.Query().Where(mutedword.UserID(x.user), mutedword.IDGT(after)).Order(ent.Asc(mutedword.FieldID)).Limit(exportPage).All(ctx)
	}, func(w *ent.MutedWord) (int64, map[string]any) {
		return w.ID, map[string]any{"type": "mutedWord", "word": w.Word, "createdAt": w.CreatedAt.UTC()}
	})
}

// conversations writes the conversations that the user mutes, also those of posts that the user cannot
// see: a row says only what the user once said.
func (x exporter) conversations(ctx context.Context) error {
	return exportAll(ctx, x.to, func(ctx context.Context, after int64) ([]*ent.MutedConversation, error) {
		return x.db.MutedConversation.Query().Where(mutedconversation.UserID(x.user), mutedconversation.IDGT(after)).
			Order(ent.Asc(mutedconversation.FieldID)).Limit(exportPage).All(ctx)
	}, func(c *ent.MutedConversation) (int64, map[string]any) {
		return c.ID, map[string]any{"type": "mutedConversation", "post": ent.NodeID("Post", c.RootID), "createdAt": c.CreatedAt.UTC()}
	})
}

// reports writes the user's reports, except reports of posts that the user could not see, because
// the export must not reveal that they exist. It does not write who reported the user.
func (x exporter) reports(ctx context.Context) error {
	return exportAll(ctx, x.to, func(ctx context.Context, after int64) ([]*ent.Report, error) {
		return x.db.Report.Query().Where(report.ReporterID(x.user), report.Unseen(false), report.IDGT(after)).Order(ent.Asc(report.FieldID)).Limit(exportPage).All(ctx)
	}, func(r *ent.Report) (int64, map[string]any) {
		fields := map[string]any{
			"type": "report", "user": r.ReportedNodeID(), "reason": r.Reason, "comment": r.Comment, "createdAt": r.CreatedAt.UTC(),
		}
		if r.PostID != 0 {
			fields["post"] = *r.PostNodeID()
		}
		return r.ID, fields
	})
}

// relationRow is a row of a relation table, with the user at its other end.
type relationRow struct {
	id, other int64
	at        time.Time
	handle    string
}

// relations writes the user's relations to users who are not hidden: a hidden user must look like
// a user who does not exist. It does not write who blocks or mutes the user.
func (x exporter) relations(ctx context.Context) error {
	for _, r := range []struct{ name, table, mine, theirs string }{
		{"follow", follow.Table, follow.FieldFollowerID, follow.FieldFolloweeID},
		{"follower", follow.Table, follow.FieldFolloweeID, follow.FieldFollowerID},
		{"request", followrequest.Table, followrequest.FieldRequesterID, followrequest.FieldTargetID},
		{"requester", followrequest.Table, followrequest.FieldTargetID, followrequest.FieldRequesterID},
		{"block", block.Table, block.FieldBlockerID, block.FieldBlockedID},
		{"mute", mute.Table, mute.FieldMuterID, mute.FieldMutedID},
	} {
		query := fmt.Sprintf("SELECT r.id, r.%[3]s, r.created_at, u.handle FROM %[1]s r JOIN users u ON u.id = r.%[3]s"+
			" WHERE r.%[2]s = $1 AND r.id > $2 AND NOT u.hidden ORDER BY r.id LIMIT %[4]d", r.table, r.mine, r.theirs, exportPage)
		err := exportAll(ctx, x.to, func(ctx context.Context, after int64) (list []relationRow, err error) {
			found, err := x.db.QueryContext(ctx, query, x.user, after)
			if err != nil {
				return nil, err
			}
			defer found.Close()
			for found.Next() {
				var e relationRow
				if err := found.Scan(&e.id, &e.other, &e.at, &e.handle); err != nil {
					return nil, err
				}
				list = append(list, e)
			}
			return list, found.Err()
		}, func(e relationRow) (int64, map[string]any) {
			return e.id, map[string]any{"type": r.name, "user": ent.NodeID("User", e.other), "handle": e.handle, "createdAt": e.at.UTC()}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
