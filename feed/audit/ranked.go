package audit

import (
	"cmp"
	"context"
	"slices"

	"tideline/ent"
	"tideline/feed/ranking"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// Score is a ranking's score of a post for a viewer, with the reasons.
type Score struct {
	Ranking    string `json:"ranking"`
	Expression string `json:"expression"`
	ranking.Scored
}

// Scores returns the scores of a post in the viewer's home timeline now, by the named ranking, or
// by all rankings if name is empty. The result is empty if that timeline does not show the post to
// the viewer. Error: BadInput, for an unknown name.
//
// Cost: one query by primary key, and for each ranking the cost of Ranking.Scores for one post.
func (a *Audit) Scores(ctx context.Context, viewer, post int64, name string) ([]Score, error) {
	rankings := a.home.Rankings()
	names := rankings.Names()
	if name != "" {
		names = []string{name}
	}
	var by []*ranking.Ranking
	for _, name := range names {
		r, err := rankings.Named(name)
		if err != nil {
			return nil, err
		}
		by = append(by, r)
	}
	scores := []Score{}
	posts, err := a.posts.Posts(ctx, visibility.Home, viewer, []int64{post}, 0)
	if err != nil || posts[0] == nil {
		return scores, err
	}
	for _, r := range by {
		scored, err := r.Explain(ctx, a.source(), viewer, a.now(), posts)
		if err != nil {
			return nil, err
		}
		scores = append(scores, Score{r.Name, r.Expression, scored[0]})
	}
	return scores, nil
}

func (a *Audit) source() ranking.Source { return ranking.Source{DB: a.db, Posts: a.posts} }

// Replay is a home timeline in the orders of two rankings.
type Replay struct {
	Rank, Against string     // names of the rankings
	Posts         []Replayed // in the order of Rank
}

// Replayed is a post with its positions, counted from 1, and scores in the two rankings.
type Replayed struct {
	Post                *ent.Post
	At, AtAgainst       int
	Score, ScoreAgainst float64
}

// Replay reads the posts that timeline(order: RANKED) would order for the user now, and orders them by
// both rankings. Error: BadInput, for an unknown name.
//
// Cost: the cost of the first page of a ranked timeline, and of Ranking.Scores a second time.
func (a *Audit) Replay(ctx context.Context, user int64, rank, against string) (*Replay, error) {
	by, err := a.home.Rankings().Named(rank)
	if err != nil {
		return nil, err
	}
	other, err := a.home.Rankings().Named(against)
	if err != nil {
		return nil, err
	}
	// asRead reads as a page does, but its reads do not count as hits or misses.
	_, asRead := a.home.Reader.Unseen(user)
	posts, err := visibility.Fill(ctx, visibility.Home, user, timeline.Range{Limit: a.tl.Feeds.InboxCap()}, asRead)
	if err != nil {
		return nil, err
	}
	now := a.now()
	scores, err := by.Scores(ctx, a.source(), user, now, posts)
	if err != nil {
		return nil, err
	}
	others, err := other.Scores(ctx, a.source(), user, now, posts)
	if err != nil {
		return nil, err
	}
	r := &Replay{Rank: by.Name, Against: other.Name, Posts: make([]Replayed, len(posts))}
	for i, p := range posts {
		r.Posts[i] = Replayed{Post: p, Score: scores[i], ScoreAgainst: others[i]}
	}
	sortBy(r.Posts, func(p Replayed) float64 { return p.ScoreAgainst })
	for i := range r.Posts {
		r.Posts[i].AtAgainst = i + 1
	}
	sortBy(r.Posts, func(p Replayed) float64 { return p.Score })
	for i := range r.Posts {
		r.Posts[i].At = i + 1
	}
	return r, nil
}

// sortBy orders posts like a ranked timeline: of two posts with equal scores the newer comes first.
func sortBy(posts []Replayed, score func(Replayed) float64) {
	slices.SortFunc(posts, func(a, b Replayed) int {
		return cmp.Or(cmp.Compare(score(b), score(a)), cmp.Compare(b.Post.ID, a.Post.ID))
	})
}

// Tau returns Kendall's rank correlation of the two orders: 1 if they are equal, -1 if one is the
// reverse of the other, and 0 if as many pairs of posts agree as disagree. It is 1 for fewer than
// two posts.
func (r *Replay) Tau() float64 {
	pairs, turned := 0, 0
	for i, above := range r.Posts {
		for _, below := range r.Posts[i+1:] {
			pairs++
			if below.AtAgainst < above.AtAgainst {
				turned++
			}
		}
	}
	if pairs == 0 {
		return 1
	}
	return 1 - 2*float64(turned)/float64(pairs)
}

// Shared returns how many posts are among the first n of both orders.
func (r *Replay) Shared(n int) (shared int) {
	for _, p := range r.Posts[:min(n, len(r.Posts))] {
		if p.AtAgainst <= n {
			shared++
		}
	}
	return shared
}
