package ranking

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/ids"
	"tideline/feed/internal/rows"
	"tideline/feed/visibility"
	"tideline/internal/errs"
)

// likesRead is how many of a viewer's likes, the newest, determine the affinities.
const likesRead = 300

// halfAffinity is how many of these likes an author needs for an affinity of one half.
const halfAffinity = 4

// maxScore bounds scores. A score that is not a number becomes -maxScore.
const maxScore = 1e300

// beginning is the zero of the signal posted. It keeps the scores of Hot small.
var beginning = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// Source is where signals are read.
type Source struct {
	DB    *ent.Client
	Posts *visibility.Reader
}

// Signal is the value of one signal of a post.
type Signal struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Scored is the score of a post, with the signals that the expression read.
type Scored struct {
	Score   float64  `json:"score"`
	Signals []Signal `json:"signals"`
}

// Scores returns the scores of posts, in their order, for a viewer who has been shown them. The
// posts must have their likes.
//
// Cost: at most MaxOperations for each post. If the expression reads affinity, one query of the
// viewer's newest 300 likes. If it reads data, one query of the data of all posts, and each is
// parsed, at most 4 KiB. The data of a post that has been hidden since counts as empty.
func (r *Ranking) Scores(ctx context.Context, from Source, viewer int64, now time.Time, posts []*ent.Post) ([]float64, error) {
	scores := make([]float64, len(posts))
	err := r.each(ctx, from, viewer, now, posts, func(i int, _ values, score float64) { scores[i] = score })
	return scores, err
}

// Explain returns the scores as Scores does, with the signals from which each was computed.
func (r *Ranking) Explain(ctx context.Context, from Source, viewer int64, now time.Time, posts []*ent.Post) ([]Scored, error) {
	list := make([]Scored, len(posts))
	err := r.each(ctx, from, viewer, now, posts, func(i int, v values, score float64) {
		signals := make([]Signal, len(r.signals))
		for at, name := range r.signals {
			signals[at] = Signal{name, v[at]}
		}
		list[i] = Scored{score, signals}
	})
	return list, err
}

func (r *Ranking) each(ctx context.Context, from Source, viewer int64, now time.Time, posts []*ent.Post, got func(i int, v values, score float64)) (err error) {
	var affinities map[int64]float64
	if r.affinity && len(posts) > 0 {
		if affinities, err = affinitiesOf(ctx, from.DB, viewer); err != nil {
			return err
		}
	}
	var data []*string
	if r.readsData() && len(posts) > 0 {
		if data, err = from.Posts.Data(ctx, viewer, rows.PostIDs(posts)); err != nil {
			return err
		}
	}
	var v [MaxSignals]float64
	for i, p := range posts {
		created := ids.TimeOf(p.ID)
		var fields map[string]any
		if data != nil {
			fields = parse(*data[i])
		}
		for at, name := range r.signals {
			switch name {
			case "age":
				v[at] = max(now.Sub(created).Seconds(), 0)
			case "posted":
				v[at] = created.Sub(beginning).Seconds()
			case "likes":
				v[at] = float64(p.LikeCount)
			case "affinity":
				v[at] = affinities[p.AuthorID]
			case "own":
				if v[at] = 0; p.AuthorID == viewer {
					v[at] = 1
				}
			default:
				v[at] = numberAt(fields, r.data[at])
			}
		}
		got(i, &v, finite(r.score(&v)))
	}
	return nil
}

func (r *Ranking) readsData() bool {
	for _, path := range r.data {
		if path != nil {
			return true
		}
	}
	return false
}

// finite keeps a score in bounds, as JSON and sorting require. A score that is not a number comes
// last.
func finite(score float64) float64 {
	if math.IsNaN(score) {
		return -maxScore
	}
	return min(max(score, -maxScore), maxScore)
}

// affinitiesOf returns how much the viewer likes authors, 0 to 1: n / (n + 4) for an author with
// n of the viewer's newest likes. The map has no other authors, and the actions of other users
// have no influence.
func affinitiesOf(ctx context.Context, db *ent.Client, viewer int64) (map[int64]float64, error) {
	found, err := db.QueryContext(ctx, fmt.Sprintf("SELECT p.author_id, count(*) FROM (SELECT post_id FROM likes WHERE user_id = $1 ORDER BY id DESC LIMIT %d) l"+
		" JOIN posts p ON p.id = l.post_id AND p.visibility <> '%s' GROUP BY p.author_id", likesRead, schema.Deleted), viewer)
	if err != nil {
		return nil, fmt.Errorf("read whom the viewer likes: %w", err)
	}
	defer found.Close()
	affinities := map[int64]float64{}
	for found.Next() {
		var author int64
		var n float64
		if err := found.Scan(&author, &n); err != nil {
			return nil, fmt.Errorf("read whom the viewer likes: %w", err)
		}
		affinities[author] = n / (n + halfAffinity)
	}
	return affinities, errs.Wrap(found.Err(), "read whom the viewer likes")
}

// parse returns the fields of a post's data, nil if they cannot be parsed.
func parse(data string) (fields map[string]any) {
	if data == ent.NoData {
		return nil
	}
	if json.Unmarshal([]byte(data), &fields) != nil {
		return nil
	}
	return fields
}

// numberAt returns the number at the path, 0 if there is none.
func numberAt(fields map[string]any, path []string) float64 {
	for _, name := range path[:len(path)-1] {
		fields, _ = fields[name].(map[string]any)
	}
	x, _ := fields[path[len(path)-1]].(float64)
	return x
}
