package transfer

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"entgo.io/ent/dialect"

	"tideline/ent"
	"tideline/ent/block"
	"tideline/ent/externalpost"
	"tideline/ent/follow"
	"tideline/ent/hiddenuser"
	"tideline/ent/like"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/account"
	inner "tideline/feed/internal/rows"
)

// perPage is how many rows an export reads at a time.
const perPage = 2000

// ownPrefix begins the external id, in a file, of a user or post that was made here and has none.
const ownPrefix = "tideline:"

// Exported counts the lines of an export.
type Exported struct {
	Users, Posts, Follows, Blocks, Likes int
	// Left counts the omitted rows of, or with, users of other issuers. Leaving counts the omitted
	// rows of, or with, users who asked for the deletion of their account or are being deleted.
	// Alone counts the omitted replies and reposts whose conversation or original is not in the file.
	Left, Leaving, Alone int
}

// Lines returns the number of lines of the file.
func (e Exported) Lines() int { return e.Users + e.Posts + e.Follows + e.Blocks + e.Likes }

// Export is an export to one file.
type Export struct {
	DB             *ent.Client
	Dialect        string
	Issuer         string // its users, and users without an issuer, are exported
	PasswordHashes bool
	// Step is called after each page.
	Step func(Exported)

	out  *json.Encoder
	done Exported
}

// Run writes users, posts, follows, blocks and likes, each in the order of their ids. On PostgreSQL
// the file is a snapshot of one moment. On SQLite each page is as it was when it was read: rows
// that are written meanwhile may refer to lines that are missing.
//
// Cost: a few look-ups by key for each two thousand rows, and memory for these rows; on PostgreSQL
// also a snapshot, which keeps old rows from being removed until the end.
func (e *Export) Run(ctx context.Context, w io.Writer) (Exported, error) {
	db := e.DB
	if e.Dialect == dialect.Postgres {
		tx, err := e.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
		if err != nil {
			return e.done, fmt.Errorf("begin a snapshot: %w", err)
		}
		defer func() { _ = tx.Rollback() }() // it has written nothing
		db = tx.Client()
	}
	buffer := bufio.NewWriterSize(w, 1<<16)
	e.out = json.NewEncoder(buffer)
	e.out.SetEscapeHTML(false)
	for _, kind := range []struct {
		name  string
		write func(context.Context, *ent.Client) error
	}{{"users", e.users}, {"posts", e.posts}, {"follows", e.follows}, {"blocks", e.blocks}, {"likes", e.likes}} {
		if err := kind.write(ctx, db); err != nil {
			return e.done, fmt.Errorf("export %s: %w", kind.name, err)
		}
	}
	return e.done, buffer.Flush()
}

// pages calls do for all rows in the order of their ids, page by page.
func pages[T any](ctx context.Context, e *Export, read func(ctx context.Context, after int64) ([]T, error), id func(T) int64, do func([]T) error) error {
	for after := int64(0); ; {
		page, err := read(ctx, after)
		if err != nil {
			return err
		}
		if len(page) > 0 {
			after = id(page[len(page)-1])
		}
		if err := do(page); err != nil {
			return err
		}
		e.Step(e.done)
		if len(page) < perPage {
			return nil
		}
	}
}

func (e *Export) users(ctx context.Context, db *ent.Client) error {
	return pages(ctx, e, func(ctx context.Context, after int64) ([]*ent.User, error) {
		return db.User.Query().Where(user.IDGT(after)).Order(user.ByID()).Limit(perPage).All(ctx)
	}, func(u *ent.User) int64 { return u.ID }, func(page []*ent.User) error {
		userIDs := inner.Map(page, func(u *ent.User) int64 { return u.ID })
		own, err := inner.UserData(ctx, db.UserData, userIDs)
		if err != nil {
			return err
		}
		hidden, told, err := e.hidden(ctx, db, userIDs)
		if err != nil {
			return err
		}
		for i, u := range page {
			id, ok := e.nameOf(u)
			if !ok || hidden[u.ID] == leaving {
				e.leave(hidden[u.ID])
				continue
			}
			created := moment(u.CreatedAt.Truncate(time.Microsecond))
			line := userLine{Type: "user", ID: id, Handle: &u.Handle, CreatedAt: &created, DefaultVisibility: &u.DefaultVisibility, ApprovesFollowers: &u.ApprovesFollowers,
				Suspended: hidden[u.ID] == suspended}
			if line.Suspended {
				line.SuspendedUntil, line.SuspensionReason = (*ending)(told[u.ID].Until), told[u.ID].Reason
			}
			if u.HomeReplies != schema.FollowedReplies {
				line.HomeReplies = &u.HomeReplies
			}
			if u.Name != "" {
				line.Name = &u.Name
			}
			if u.Bio != "" {
				line.Bio = &u.Bio
			}
			if u.AvatarURL != "" {
				line.AvatarURL = &u.AvatarURL
			}
			if u.Links != "" {
				line.Links = u.LinkList()
			}
			if *own[i] != ent.NoData {
				line.Data = json.RawMessage(*own[i])
			}
			if e.PasswordHashes && u.PasswordHash != account.NoPassword && u.PasswordHash != "" {
				line.PasswordHash = &u.PasswordHash
			}
			if err := e.out.Encode(line); err != nil {
				return err
			}
			e.done.Users++
		}
		return nil
	})
}

// nameOf returns the user's id in the file. It reports false for users of other issuers, who have
// none.
func (e *Export) nameOf(u *ent.User) (string, bool) {
	switch {
	case u.Issuer == nil:
		return ownPrefix + strconv.FormatInt(u.ID, 10), true
	case *u.Issuer == e.Issuer:
		return string(u.ExternalID), true
	}
	return "", false
}

// hiding is the reason why nobody sees a user, or "" for a visible user.
type hiding string

const (
	suspended hiding = "suspended"
	leaving   hiding = "leaving" // the account is being deleted, or will be: the file contains nothing about the user
)

// hidden returns why each hidden user is hidden, and the suspension of each suspended user.
func (e *Export) hidden(ctx context.Context, db *ent.Client, userIDs []int64) (map[int64]hiding, map[int64]account.Suspension, error) {
	found, err := db.HiddenUser.Query().Where(inner.Among(hiddenuser.FieldID, userIDs)).All(ctx)
	why, told := make(map[int64]hiding, len(found)), map[int64]account.Suspension{}
	for _, row := range found {
		if why[row.ID], told[row.ID] = suspended, account.SuspensionOf(row); account.Leaves(row) {
			why[row.ID] = leaving
		}
	}
	return why, told, err
}

// leave counts a row that is left out of the file.
func (e *Export) leave(why ...hiding) {
	if slices.Contains(why, leaving) {
		e.done.Leaving++
	} else {
		e.done.Left++
	}
}

// userNames returns the ids in the file of the users who have one, and the reasons of hidden users.
func (e *Export) userNames(ctx context.Context, db *ent.Client, userIDs []int64) (names map[int64]string, hidden map[int64]hiding, err error) {
	userIDs = distinct(userIDs)
	found, err := db.User.Query().Where(inner.Among(user.FieldID, userIDs)).Select(user.FieldID, user.FieldIssuer, user.FieldExternalID).All(ctx)
	if err != nil {
		return nil, nil, err
	}
	if hidden, _, err = e.hidden(ctx, db, userIDs); err != nil {
		return nil, nil, err
	}
	names = make(map[int64]string, len(found))
	for _, u := range found {
		if name, ok := e.nameOf(u); ok && hidden[u.ID] != leaving {
			names[u.ID] = name
		}
	}
	return names, hidden, nil
}

// postNames returns the ids of posts in the file.
func (e *Export) postNames(ctx context.Context, db *ent.Client, postIDs []int64) (map[int64]string, error) {
	found, err := db.ExternalPost.Query().Where(inner.Among(externalpost.FieldPostID, distinct(postIDs)), externalpost.Issuer(e.Issuer)).
		Order(ent.Desc(externalpost.FieldID)).All(ctx)
	if err != nil {
		return nil, err
	}
	names := make(map[int64]string, len(postIDs))
	for _, id := range postIDs {
		names[id] = ownPrefix + strconv.FormatInt(id, 10)
	}
	for _, p := range found {
		names[p.PostID] = string(p.ExternalID)
	}
	return names, nil
}

func distinct(list []int64) []int64 {
	slices.Sort(list)
	return slices.Compact(list)
}

func (e *Export) follows(ctx context.Context, db *ent.Client) error {
	return pages(ctx, e, func(ctx context.Context, after int64) ([]*ent.Follow, error) {
		return db.Follow.Query().Where(follow.IDGT(after)).Order(follow.ByID()).Limit(perPage).All(ctx)
	}, func(f *ent.Follow) int64 { return f.ID }, func(page []*ent.Follow) error {
		return e.relations(ctx, db, len(page), func(i int) (from, to int64) { return page[i].FollowerID, page[i].FolloweeID }, &e.done.Follows,
			func(from, to string) any { return followLine{"follow", from, to} })
	})
}

func (e *Export) blocks(ctx context.Context, db *ent.Client) error {
	return pages(ctx, e, func(ctx context.Context, after int64) ([]*ent.Block, error) {
		return db.Block.Query().Where(block.IDGT(after)).Order(block.ByID()).Limit(perPage).All(ctx)
	}, func(b *ent.Block) int64 { return b.ID }, func(page []*ent.Block) error {
		return e.relations(ctx, db, len(page), func(i int) (from, to int64) { return page[i].BlockerID, page[i].BlockedID }, &e.done.Blocks,
			func(from, to string) any { return blockLine{"block", from, to} })
	})
}

// relations writes lines that each name two users.
func (e *Export) relations(ctx context.Context, db *ent.Client, n int, row func(int) (from, to int64), done *int, line func(from, to string) any) error {
	users := make([]int64, 0, 2*n)
	for i := range n {
		from, to := row(i)
		users = append(users, from, to)
	}
	names, hidden, err := e.userNames(ctx, db, users)
	if err != nil {
		return err
	}
	for i := range n {
		a, b := row(i)
		from, known := names[a]
		to, both := names[b]
		if !known || !both {
			e.leave(hidden[a], hidden[b])
			continue
		}
		if err := e.out.Encode(line(from, to)); err != nil {
			return err
		}
		*done++
	}
	return nil
}

func (e *Export) likes(ctx context.Context, db *ent.Client) error {
	return pages(ctx, e, func(ctx context.Context, after int64) ([]*ent.Like, error) {
		return db.Like.Query().Where(like.IDGT(after)).Order(like.ByID()).Limit(perPage).All(ctx)
	}, func(l *ent.Like) int64 { return l.ID }, func(page []*ent.Like) error {
		if len(page) == 0 {
			return nil
		}
		var userIDs, postIDs []int64
		for _, l := range page {
			userIDs, postIDs = append(userIDs, l.UserID), append(postIDs, l.PostID)
		}
		posts, err := db.Post.Query().Where(inner.Among(post.FieldID, distinct(slices.Clone(postIDs))), post.VisibilityNEQ(schema.Deleted)).Select(post.FieldID, post.FieldAuthorID).All(ctx)
		if err != nil {
			return err
		}
		authors := make(map[int64]int64, len(posts))
		for _, p := range posts {
			authors[p.ID] = p.AuthorID
			userIDs = append(userIDs, p.AuthorID)
		}
		users, hidden, err := e.userNames(ctx, db, userIDs)
		if err != nil {
			return err
		}
		names, err := e.postNames(ctx, db, distinct(postIDs))
		if err != nil {
			return err
		}
		for _, l := range page {
			author, there := authors[l.PostID]
			if !there { // the post is deleted, and its likes are about to be
				continue
			}
			who, known := users[l.UserID]
			if _, written := users[author]; !known || !written {
				e.leave(hidden[l.UserID], hidden[author])
				continue
			}
			if err := e.out.Encode(likeLine{"like", who, names[l.PostID]}); err != nil {
				return err
			}
			e.done.Likes++
		}
		return nil
	})
}
