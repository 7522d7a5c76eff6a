package seed

import (
	"context"
	"fmt"
	"time"

	"tideline/ent/schema"
	"tideline/feed/password"
	"tideline/storage"
)

const (
	// DemoHandle is the handle of the demo network's main user, who has a full timeline and follow requests
	// to answer. Its existence marks a database that has a demo network.
	DemoHandle = "demo"
	// DemoPassword is the password of every user of a demo network.
	DemoPassword = "tideline-demo"
)

// makeDemo generates a demo network and stores it in one transaction. It changes no existing rows.
func makeDemo(ctx context.Context, s *storage.Stores, o Options, now time.Time) (*network, error) {
	m := newMaker(o.Seed, now)
	m.makePeople(o.Users)
	if err := m.avoidTaken(ctx, s); err != nil {
		return nil, err
	}
	m.makeRelations()
	m.makePosts(o.Posts)
	m.talk()
	m.makeLikes()
	hash, err := password.Hash(DemoPassword)
	if err != nil {
		return nil, err
	}

	tx, err := s.SQL.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("store the demo network: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err := m.store(ctx, writer{dialect: s.Dialect, db: tx}, hash); err != nil {
		return nil, fmt.Errorf("store the demo network: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("store the demo network: %w", err)
	}
	return &m.network, nil
}

// avoidTaken renames people whose handles users of the database already have. It fails if DemoHandle is taken.
func (m *maker) avoidTaken(ctx context.Context, s *storage.Stores) error {
	ours := map[string]bool{}
	for _, p := range m.people {
		ours[p.handle] = true
	}
	unchecked := m.people // a new handle may be taken too
	for len(unchecked) > 0 {
		handles := make([]string, len(unchecked))
		for i, p := range unchecked {
			handles[i] = p.handle
		}
		taken, err := handlesIn(ctx, s.SQL, s.Dialect, handles)
		if err != nil {
			return err
		}
		if _, isTaken := taken[DemoHandle]; isTaken {
			return fmt.Errorf("there is a user %s: this database has a demo network already. "+
				"Nothing was changed. To create another demo network, use another database", DemoHandle)
		}
		unchecked = nil
		for i := range m.people {
			p := &m.people[i]
			if _, isTaken := taken[p.handle]; !isTaken {
				continue
			}
			p.handle = freeHandle(p.handle, func(h string) bool { _, isTaken := taken[h]; return isTaken || ours[h] })
			ours[p.handle] = true
			unchecked = append(unchecked, *p)
		}
	}
	return nil
}

// store writes the network. Nobody else can see or change it before the transaction commits, so each counter
// is written once with its final value.
func (m *maker) store(ctx context.Context, w writer, hash string) error {
	written, newest := make([]map[schema.Visibility]int, len(m.people)), make([]int64, len(m.people))
	for i := range written {
		written[i] = map[schema.Visibility]int{}
	}
	posts := make([][]any, len(m.posts))
	for i, p := range m.posts {
		posts[i] = []any{p.id, m.people[p.author].id, p.text, string(p.visibility), p.likes,
			m.idOf(p.parent), m.authorOf(p.parent), m.idOf(p.root), m.idOf(p.original), m.idOf(p.quoted), p.replies, p.reposts, p.quotes}
		if newest[p.author] = p.id; p.parent == none && p.original == none {
			written[p.author][p.visibility]++
		}
	}
	people := make([][]any, len(m.people))
	for i, p := range m.people {
		public, followers, mutuals := written[i][schema.Public], written[i][schema.Followers], written[i][schema.Mutuals]
		people[i] = []any{p.id, p.handle, p.name, p.bio, hash, p.approves, string(p.visibility),
			len(m.followers[i]), len(m.following[i]), public + followers + mutuals + written[i][schema.Private],
			public, followers, mutuals, newest[i], p.joined}
	}
	likes := make([][]any, len(m.likes))
	for i, l := range m.likes {
		likes[i] = []any{m.people[l.person].id, m.posts[l.post].id}
	}
	mentions := make([][]any, len(m.mentions))
	for i, n := range m.mentions {
		mentions[i] = []any{m.posts[n.post].id, m.people[n.person].id, n.start, n.end}
	}
	for _, t := range []struct {
		name    string
		columns []string
		rows    [][]any
	}{
		{"users", []string{"id", "handle", "name", "bio", "password_hash", "approves_followers", "default_visibility",
			"follower_count", "following_count", "post_count",
			"public_post_count", "followers_post_count", "mutuals_post_count", "last_post_id", "created_at"}, people},
		{"posts", []string{"id", "author_id", "text", "visibility", "like_count",
			"parent_id", "parent_author_id", "root_id", "repost_of", "quote_of", "reply_count", "repost_count", "quote_count"}, posts},
		{"post_mentions", []string{"post_id", "user_id", "start", "end"}, mentions},
		{"follows", []string{"follower_id", "followee_id", "created_at"}, m.rows(m.follows)},
		{"follow_requests", []string{"requester_id", "target_id", "created_at"}, m.rows(m.requests)},
		{"blocks", []string{"blocker_id", "blocked_id", "created_at"}, m.rows(m.blocks)},
		{"mutes", []string{"muter_id", "muted_id", "created_at"}, m.rows(m.mutes)},
		{"likes", []string{"user_id", "post_id"}, likes},
	} {
		if _, err := w.insert(ctx, t.name, t.columns, t.rows); err != nil {
			return err
		}
	}
	return nil
}

// idOf returns the id of a post, or nil.
func (m *maker) idOf(post int) any {
	if post == none {
		return nil
	}
	return m.posts[post].id
}

// authorOf returns the id of a post's author, or nil.
func (m *maker) authorOf(post int) any {
	if post == none {
		return nil
	}
	return m.people[m.posts[post].author].id
}

func (m *maker) rows(edges []edge) [][]any {
	rows := make([][]any, len(edges))
	for i, e := range edges {
		rows[i] = []any{m.people[e.from].id, m.people[e.to].id, e.at}
	}
	return rows
}
