package home

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"tideline/ent"
	"tideline/ent/follow"
	"tideline/ent/readmarker"
	"tideline/ent/schema"
	"tideline/feed/internal/rows"
	"tideline/feed/job"
	"tideline/internal/lru"
)

const (
	// keptBytes bounds the numbers that a process keeps: those of 65,536 users with 30 unread
	// posts each.
	keptBytes = 24 << 20
	// keptOverhead is what a user takes beside 8 bytes an id.
	keptOverhead = 144
	// askedJobs is how many unfinished jobs one look takes; behind more nothing is certain.
	askedJobs = 64
)

// unreadCounts keeps how many unread posts the timelines of users have, for the users who asked
// last, in 24 MB at most. It says when a number that was kept is still right. It is safe for
// concurrent use.
//
// What is kept are the ids of the unread posts that the viewer was seen to be allowed to
// see. That is still so if three things hold:
//
//   - SQL has no unfinished job of a change by which the viewer may see more or less, and
//     the viewer mutes the same words ([unreadCounts.ask]). Such a job is written with its change
//     and ends when inboxes agree with it.
//   - After that look, the viewer's inbox is found to be of the same epoch and generation
//     ([unreadBasis]). A change that takes a post from the viewer raises the generation once it is
//     committed, also where reads merge its author; so does an edit, where the viewer mutes
//     words.
//   - The feeds that are read still have the ids. They are read anew each time.
//
// What the feeds have beside them is read from SQL: new posts, and posts that are hidden,
// which may be shown any time without a word. So a change has a job, or has changed the
// inbox; no clock decides. Whatever is not certain is counted anew.
type unreadCounts struct {
	db      *ent.Client
	dialect string
	kept    *lru.Cache[int64, unreadPosts]
	told    atomic.Int64 // numbers that were kept
}

// newUnreadCounts returns unreadCounts that look for jobs in the database of the dialect.
func newUnreadCounts(db *ent.Client, dialect string) *unreadCounts {
	return &unreadCounts{db: db, dialect: dialect, kept: lru.New[int64, unreadPosts](keptBytes)}
}

// unreadAnswer is what SQL says of a user's number of unread posts.
type unreadAnswer struct {
	// Marker is the id up to which the user has read, 0 if the user never said so.
	Marker int64
	// Certain says that every change by which the user may see more or less of a home
	// timeline has reached the inbox, or the journal of it; but for muted words.
	Certain bool
	// Words differs from one set of muted words to the next.
	Words mutedWords
}

// mutedWords names the words that a user mutes, by their rows: how many, and the last that came.
type mutedWords struct{ Count, Last int64 }

// unreadChanges are the unfinished jobs by which users may see more or less. Dead jobs of the two
// kinds have another one that makes up for them.
var unreadChanges = `SELECT kind, payload FROM jobs
  WHERE ` + schema.JobChanges + ` AND (dead = false OR kind NOT IN ('` + job.PostChanged + `', '` + job.RelationChanged + `'))
  LIMIT ` + strconv.Itoa(askedJobs)

// unreadQuestion asks for the marker of a user, for muted words, which hide posts that an inbox has,
// and for the changes.
var unreadQuestion = `SELECT COALESCE((SELECT post_id FROM read_markers WHERE id = $1), 0), w.count, w.last, COALESCE(j.kind, ''), COALESCE(j.payload, 'null')
  FROM (SELECT count(*) count, COALESCE(max(id), 0) last FROM muted_words WHERE user_id = $1) w LEFT JOIN (` + unreadChanges + `) j ON true`

// ask asks SQL, by indexes, for what decides whether a number that was kept is right. Read the
// inbox after it.
//
// Cost: one query, and a second while posts of some authors are being hidden or shown.
func (c *unreadCounts) ask(ctx context.Context, user int64) (unreadAnswer, error) {
	var a unreadAnswer
	var some concernedUsers
	err := c.each(ctx, func(found *sql.Rows) error {
		var kind string
		var payload []byte
		err := found.Scan(&a.Marker, &a.Words.Count, &a.Words.Last, &kind, &payload)
		if kind != "" {
			some.add(kind, payload)
		}
		return err
	}, unreadQuestion, user)
	if err != nil {
		return unreadAnswer{}, err
	}
	uncertain, err := c.among(ctx, some, []int64{user})
	a.Certain = !uncertain[user]
	return a, err
}

// askMany is ask of many users.
//
// Cost: two queries, and a third while posts of some authors are being hidden or shown.
func (c *unreadCounts) askMany(ctx context.Context, users []int64) (map[int64]unreadAnswer, error) {
	answers := make(map[int64]unreadAnswer, len(users))
	err := c.each(ctx, func(found *sql.Rows) error {
		var user int64
		var a unreadAnswer
		err := found.Scan(&user, &a.Marker, &a.Words.Count, &a.Words.Last)
		answers[user] = a
		return err
	}, `SELECT u.value, COALESCE(m.post_id, 0), (SELECT count(*) FROM muted_words w WHERE w.user_id = u.value),
		(SELECT COALESCE(max(w.id), 0) FROM muted_words w WHERE w.user_id = u.value)
		FROM `+rows.Each(c.dialect, "$1")+` LEFT JOIN read_markers m ON m.id = u.value`, rows.List(c.dialect, users))
	if err != nil {
		return nil, err
	}
	var some concernedUsers
	err = c.each(ctx, func(found *sql.Rows) error {
		var kind string
		var payload []byte
		err := found.Scan(&kind, &payload)
		some.add(kind, payload)
		return err
	}, unreadChanges)
	if err != nil {
		return nil, err
	}
	uncertain, err := c.among(ctx, some, users)
	for user, a := range answers {
		a.Certain = !uncertain[user]
		answers[user] = a
	}
	return answers, err
}

// each calls scan for each row of the query.
func (c *unreadCounts) each(ctx context.Context, scan func(*sql.Rows) error, query string, args ...any) error {
	found, err := c.db.QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("ask for unread posts: %w", err)
	}
	defer found.Close()
	for found.Next() {
		if err := scan(found); err != nil {
			return fmt.Errorf("ask for unread posts: %w", err)
		}
	}
	return rows.Wrap("ask for unread posts", found.Err())
}

// among returns those of the users who may see more or less by unfinished jobs.
func (c *unreadCounts) among(ctx context.Context, some concernedUsers, users []int64) (uncertain map[int64]bool, err error) {
	uncertain = map[int64]bool{}
	for _, user := range users {
		if some.everybody || some.jobs >= askedJobs || slices.Contains(some.users, user) {
			uncertain[user] = true
		}
	}
	if len(some.authors) == 0 || len(uncertain) == len(users) {
		return uncertain, nil
	}
	var followers []int64
	err = c.db.Follow.Query().Where(rows.Among(follow.FieldFollowerID, users), rows.Among(follow.FieldFolloweeID, some.authors)).
		Select(follow.FieldFollowerID).Scan(ctx, &followers)
	for _, user := range followers {
		uncertain[user] = true
	}
	return uncertain, rows.Wrap("ask for unread posts", err)
}

// moveMarker moves the user's read marker forwards to a post, never backwards, and reports
// whether it did. It moves no further than to the newest post there is: a made-up cursor must
// not mark posts as read that nobody has written yet. A marker that is further goes back.
//
// Cost: three statements.
func (c *unreadCounts) moveMarker(ctx context.Context, user, post int64) (moved bool, err error) {
	newest, err := rows.IDs(ctx, c.db, "SELECT max(id) AS id FROM posts")
	if err != nil {
		return false, fmt.Errorf("find newest post: %w", err)
	}
	if len(newest) == 0 {
		return false, nil
	}
	post = min(post, newest[0])
	err = c.db.ReadMarker.Create().SetID(user).SetPostID(0).OnConflictColumns(readmarker.FieldID).Ignore().Exec(ctx)
	if err != nil {
		return false, fmt.Errorf("create read marker: %w", err)
	}
	n, err := c.db.ReadMarker.Update().Where(readmarker.ID(user), readmarker.Or(readmarker.PostIDLT(post), readmarker.PostIDGT(newest[0]))).SetPostID(post).Save(ctx)
	return n > 0, rows.Wrap("move read marker", err)
}

// concernedUsers are those who may see more or less by unfinished jobs.
type concernedUsers struct {
	jobs           int
	everybody      bool
	users, authors []int64 // these, and whoever follows one of the authors
}

// add adds whom a job concerns: one of a kind that this version does not know may concern
// everybody.
func (c *concernedUsers) add(kind string, payload []byte) {
	c.jobs++
	switch kind {
	case job.PostChanged, job.PostGivenUp, job.AuthorStale:
		var j job.Post
		if json.Unmarshal(payload, &j) == nil {
			c.users, c.authors = append(c.users, j.Author), append(c.authors, j.Author)
			return
		}
	case job.RelationChanged, job.RelationGivenUp:
		var j job.Relation
		if json.Unmarshal(payload, &j) == nil {
			c.users = append(c.users, j.Users[:]...)
			return
		}
	}
	c.everybody = true
}
