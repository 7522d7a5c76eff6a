package home

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"tideline/ent/follow"
	"tideline/ent/readmarker"
	"tideline/ent/schema"
	"tideline/feed/internal/rows"
	"tideline/feed/job"
	"tideline/internal/errs"
)

// askedJobs is how many unfinished jobs one look reads. If it finds that many, no number is
// certain.
const askedJobs = 64

// unreadAnswer is the answer of SQL about the unread posts of a user.
type unreadAnswer struct {
	// Marker is the id up to which the user has read, 0 if the user has no marker.
	Marker int64
	// Certain says that every change in the posts that the user may see, except a change of muted
	// words, has reached the inbox or its journal.
	Certain bool
	// Words differs between two sets of muted words.
	Words mutedWords
}

// mutedWords identifies a set of muted words: by the number of its rows, and the newest id.
type mutedWords struct{ Count, Last int64 }

// unreadChanges selects the unfinished jobs that may change which posts users see. It leaves out
// dead jobs of the two named kinds, because another job makes up for each.
var unreadChanges = `SELECT kind, payload FROM jobs
  WHERE ` + schema.JobChanges + ` AND (dead = false OR kind NOT IN ('` + job.PostChanged + `', '` + job.RelationChanged + `'))
  LIMIT ` + strconv.Itoa(askedJobs)

// unreadQuestion selects a user's marker, the user's muted words, which hide posts that an inbox
// has, and the jobs of unreadChanges.
var unreadQuestion = `SELECT COALESCE((SELECT post_id FROM read_markers WHERE id = $1), 0), w.count, w.last, COALESCE(j.kind, ''), COALESCE(j.payload, 'null')
  FROM (SELECT count(*) count, COALESCE(max(id), 0) last FROM muted_words WHERE user_id = $1) w LEFT JOIN (` + unreadChanges + `) j ON true`

// ask queries SQL, by indexes, for the facts that decide whether a kept number is right. Read the
// inbox after it.
//
// Cost: one query, and a second while posts of some authors are being hidden or shown.
func (u *Unread) ask(ctx context.Context, user int64) (unreadAnswer, error) {
	var a unreadAnswer
	var some concernedUsers
	err := u.each(ctx, func(found *sql.Rows) error {
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
	uncertain, err := u.among(ctx, some, []int64{user})
	a.Certain = !uncertain[user]
	return a, err
}

// askMany is ask for many users.
//
// Cost: two queries, and a third while posts of some authors are being hidden or shown.
func (u *Unread) askMany(ctx context.Context, users []int64) (map[int64]unreadAnswer, error) {
	answers := make(map[int64]unreadAnswer, len(users))
	err := u.each(ctx, func(found *sql.Rows) error {
		var user int64
		var a unreadAnswer
		err := found.Scan(&user, &a.Marker, &a.Words.Count, &a.Words.Last)
		answers[user] = a
		return err
	}, `SELECT u.value, COALESCE(m.post_id, 0), (SELECT count(*) FROM muted_words w WHERE w.user_id = u.value),
		(SELECT COALESCE(max(w.id), 0) FROM muted_words w WHERE w.user_id = u.value)
		FROM `+rows.Each(u.dialect, "$1")+` LEFT JOIN read_markers m ON m.id = u.value`, rows.List(u.dialect, users))
	if err != nil {
		return nil, err
	}
	var some concernedUsers
	err = u.each(ctx, func(found *sql.Rows) error {
		var kind string
		var payload []byte
		err := found.Scan(&kind, &payload)
		some.add(kind, payload)
		return err
	}, unreadChanges)
	if err != nil {
		return nil, err
	}
	uncertain, err := u.among(ctx, some, users)
	for user, a := range answers {
		a.Certain = !uncertain[user]
		answers[user] = a
	}
	return answers, err
}

// each calls scan for each row of the query.
func (u *Unread) each(ctx context.Context, scan func(*sql.Rows) error, query string, args ...any) error {
	found, err := u.db.QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("ask for unread posts: %w", err)
	}
	defer found.Close()
	for found.Next() {
		if err := scan(found); err != nil {
			return fmt.Errorf("ask for unread posts: %w", err)
		}
	}
	return errs.Wrap(found.Err(), "ask for unread posts")
}

// among returns the users whose visible posts may change with unfinished jobs.
func (u *Unread) among(ctx context.Context, some concernedUsers, users []int64) (uncertain map[int64]bool, err error) {
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
	err = u.db.Follow.Query().Where(rows.Among(follow.FieldFollowerID, users), rows.Among(follow.FieldFolloweeID, some.authors)).
		Select(follow.FieldFollowerID).Scan(ctx, &followers)
	for _, user := range followers {
		uncertain[user] = true
	}
	return uncertain, errs.Wrap(err, "ask for unread posts")
}

// moveMarker moves the user's read marker forwards to a post, never backwards, and reports
// whether it moved. It moves no further than the newest post: a forged cursor must not mark posts
// as read that nobody has written yet.
//
// Cost: three statements.
func (u *Unread) moveMarker(ctx context.Context, user, post int64) (moved bool, err error) {
	newest, err := rows.IDs(ctx, u.db, "SELECT max(id) AS id FROM posts")
	if err != nil {
		return false, fmt.Errorf("find newest post: %w", err)
	}
	if len(newest) == 0 {
		return false, nil
	}
	post = min(post, newest[0])
	err = u.db.ReadMarker.Create().SetID(user).SetPostID(0).OnConflictColumns(readmarker.FieldID).Ignore().Exec(ctx)
	if err != nil {
		return false, fmt.Errorf("create read marker: %w", err)
	}
	n, err := u.db.ReadMarker.Update().Where(readmarker.ID(user), readmarker.PostIDLT(post)).SetPostID(post).Save(ctx)
	return n > 0, errs.Wrap(err, "move read marker")
}

// concernedUsers collects the users whose visible posts may change with unfinished jobs.
type concernedUsers struct {
	jobs           int
	everybody      bool
	users, authors []int64 // these users, and the followers of these authors
}

// add adds the users that a job concerns. A job of a kind that this version does not know may
// concern everybody.
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
