// Package unread keeps how many unread posts a timeline has.
// It says when a number that was kept is still right.
//
// What is kept are the ids of the unread posts that the viewer was seen to be allowed to
// see. That is still so if three things hold:
//
//   - SQL has no unfinished job of a change by which the viewer may see more or less, and
//     the viewer mutes the same words ([Counts.Ask]). Such a job is written with its change
//     and ends when inboxes agree with it.
//   - After that look, the viewer's inbox is of the same position in its journal and the
//     same generation ([Kept.Of]). A change that takes a post from the viewer moves one of
//     the two, also where reads merge its author: of the journals of followers the one, by
//     an edit for a viewer who mutes words the other.
//   - The feeds that are read still have the ids. They are read anew each time.
//
// What the feeds have beside them is read from SQL: new posts, and posts that are hidden,
// which may be shown any time without a word. So a change has a job, or has changed the
// inbox; no clock decides. Whatever is not certain is counted anew.
package unread

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"tideline/ent"
	"tideline/ent/follow"
	"tideline/ent/readmarker"
	"tideline/ent/schema"
	"tideline/feed/internal/rows"
	"tideline/feed/job"
)

const (
	// keptUsers is of how many users a process keeps the number: with inboxes of 500 posts
	// these are 16 MB at most.
	keptUsers = 4096
	// askedJobs is how many unfinished jobs one look takes; behind more nothing is certain.
	askedJobs = 64
)

// Counts keeps the numbers of the users who asked for theirs last, at most 4,096. It is safe
// for concurrent use.
type Counts struct {
	db   *ent.Client
	kept *lru.Cache[int64, Kept]
	told atomic.Int64 // numbers that were kept
}

// New returns Counts that look for jobs in the database.
func New(db *ent.Client) *Counts {
	kept, err := lru.New[int64, Kept](keptUsers)
	if err != nil {
		panic(err) // of a size that is not positive
	}
	return &Counts{db: db, kept: kept}
}

// Answer is what SQL says of a user's number of unread posts.
type Answer struct {
	// Marker is the id up to which the user has read, 0 if the user never said so.
	Marker int64
	// Certain says that every change by which the user may see more or less of a home
	// timeline has reached the inbox, or the journal of it; but for muted words.
	Certain bool
	// Words differs from one set of muted words to the next.
	Words Words
}

// Words names the words that a user mutes, by their rows: how many, and the last that came.
type Words struct{ Count, Last int64 }

// question asks for the marker, for muted words, which hide posts that an inbox has, and for
// the jobs that do. Dead jobs of the two kinds have another one that makes up for them.
var question = `SELECT COALESCE((SELECT post_id FROM read_markers WHERE id = $1), 0),
  w.count, w.last, COALESCE(j.kind, ''), COALESCE(j.payload, 'null')
  FROM (SELECT count(*) count, COALESCE(max(id), 0) last FROM muted_words WHERE user_id = $1) w LEFT JOIN (SELECT kind, payload FROM jobs
    WHERE ` + schema.JobChanges + ` AND (dead = false OR kind NOT IN ('` + job.PostChanged + `', '` + job.RelationChanged + `'))
    LIMIT ` + strconv.Itoa(askedJobs) + `) j ON true`

// Ask asks SQL, by indexes, for what decides whether a number that was kept is right. Read the
// inbox after it.
//
// Cost: one query, and a second while posts of some authors are being hidden or shown.
func (c *Counts) Ask(ctx context.Context, user int64) (Answer, error) {
	found, err := c.db.QueryContext(ctx, question, user)
	if err != nil {
		return Answer{}, fmt.Errorf("ask for unread posts: %w", err)
	}
	defer found.Close()
	var a Answer
	var everybody bool
	var authors []int64
	jobs := 0
	for found.Next() {
		var kind string
		var payload []byte
		if err := found.Scan(&a.Marker, &a.Words.Count, &a.Words.Last, &kind, &payload); err != nil {
			return Answer{}, fmt.Errorf("ask for unread posts: %w", err)
		}
		if kind == "" {
			continue
		}
		jobs++
		some, of := concerns(kind, payload, user)
		everybody = everybody || some
		authors = append(authors, of...)
	}
	if err := found.Err(); err != nil {
		return Answer{}, fmt.Errorf("ask for unread posts: %w", err)
	}
	a.Certain = !everybody && jobs < askedJobs
	if a.Certain && len(authors) > 0 {
		follows, err := c.db.Follow.Query().Where(follow.FollowerID(user), rows.Among(follow.FieldFolloweeID, authors)).Exist(ctx)
		if err != nil {
			return Answer{}, fmt.Errorf("ask for unread posts: %w", err)
		}
		a.Certain = !follows
	}
	return a, nil
}

// MoveMarker moves the user's read marker forwards to a post, never backwards, and reports
// whether it did.
//
// Cost: two statements.
func (c *Counts) MoveMarker(ctx context.Context, user, post int64) (moved bool, err error) {
	err = c.db.ReadMarker.Create().SetID(user).SetPostID(0).OnConflictColumns(readmarker.FieldID).Ignore().Exec(ctx)
	if err != nil {
		return false, fmt.Errorf("create read marker: %w", err)
	}
	n, err := c.db.ReadMarker.Update().Where(readmarker.ID(user), readmarker.PostIDLT(post)).SetPostID(post).Save(ctx)
	return n > 0, rows.Wrap("move read marker", err)
}

// concerns reports whether an unfinished job may change what the user sees: for certain, or
// if the user follows one of the authors. A kind that this version does not know may.
func concerns(kind string, payload []byte, user int64) (certainly bool, authors []int64) {
	switch kind {
	case job.PostChanged, job.PostGivenUp, job.AuthorStale:
		var j job.Post
		if json.Unmarshal(payload, &j) == nil {
			return j.Author == user, []int64{j.Author}
		}
	case job.RelationChanged, job.RelationGivenUp:
		var j job.Relation
		if json.Unmarshal(payload, &j) == nil {
			return slices.Contains(j.Users[:], user), nil
		}
	}
	return true, nil
}
