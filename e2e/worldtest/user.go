package worldtest

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// User is a user with a session token.
type User struct {
	ID     int64 // the database id
	Handle string
	Token  string
}

// Post is a post as a reader sees it. Text is empty if the query did not select it.
type Post struct{ ID, Text string }

// List is a page of posts.
type List struct {
	Nodes    []Post
	PageInfo struct {
		HasNextPage bool
		EndCursor   *string
	}
}

// Timeline reads the user's whole timeline and returns the post ids, newest first.
func (u User) Timeline(ctx context.Context, p *Process) (ids []string, err error) {
	err = walk(func(after *string) (List, error) {
		var data struct{ Timeline List }
		err := p.Call(ctx, u.Token, `query($after: Cursor) {
			timeline(first: 100, after: $after) { nodes { id } pageInfo { hasNextPage endCursor } }
		}`, map[string]any{"after": after}, &data)
		ids = append(ids, data.Timeline.ids()...)
		return data.Timeline, err
	})
	return ids, err
}

// Posts reads the author's whole profile as the user and returns the post ids, newest first.
func (u User) Posts(ctx context.Context, p *Process, author User) (ids []string, err error) {
	err = walk(func(after *string) (List, error) {
		l, err := u.profile(ctx, p, author, after)
		ids = append(ids, l.ids()...)
		return l, err
	})
	return ids, err
}

// Texts returns the texts of the posts that [User.Posts] lists, keyed by id.
func (u User) Texts(ctx context.Context, p *Process, author User) (map[string]string, error) {
	texts := map[string]string{}
	err := walk(func(after *string) (List, error) {
		l, err := u.profile(ctx, p, author, after)
		for _, n := range l.Nodes {
			texts[n.ID] = n.Text
		}
		return l, err
	})
	return texts, err
}

func (u User) profile(ctx context.Context, p *Process, author User, after *string) (List, error) {
	var data struct{ User struct{ Posts List } }
	err := p.Call(ctx, u.Token, `query($handle: String!, $after: Cursor) {
		user(handle: $handle) { posts(first: 100, after: $after) { nodes { id text } pageInfo { hasNextPage endCursor } } }
	}`, map[string]any{"handle": author.Handle, "after": after}, &data)
	return data.User.Posts, err
}

// walk reads all pages of a list.
func walk(page func(after *string) (List, error)) error {
	for after := (*string)(nil); ; {
		l, err := page(after)
		if err != nil || !l.PageInfo.HasNextPage {
			return err
		}
		after = l.PageInfo.EndCursor
	}
}

func (l List) ids() (ids []string) {
	for _, n := range l.Nodes {
		ids = append(ids, n.ID)
	}
	return ids
}

// Difference compares the posts that a reader has with the wanted posts, in any order. It describes the
// missing posts, and the extra and duplicate ones, and returns "" if there are none. The text begins with
// who, the name of the reader.
func Difference(who string, want, have []string) string {
	count := map[string]int{}
	for _, id := range want {
		count[id]--
	}
	for _, id := range have {
		count[id]++
	}
	var missing, extra []string
	for id, n := range count {
		switch {
		case n < 0:
			missing = append(missing, id)
		case n > 0:
			extra = append(extra, id)
		}
	}
	if len(missing)+len(extra) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: missing %v, extra %v\n", who, missing, extra)
}

// PostID returns the database id of a post from its API id, or 0 if id is not the API
// id of a post.
func PostID(id string) int64 {
	text, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimPrefix(string(text), "Post:"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// GlobalID returns the API id of an object, for example of kind "User" with database
// id 5.
func GlobalID(kind string, id int64) string {
	return base64.RawURLEncoding.EncodeToString([]byte(kind + ":" + strconv.FormatInt(id, 10)))
}
