package audit

import (
	"context"

	"tideline/feed/ranking"
	"tideline/feed/visibility"
)

// Score is what a ranking makes of a post for a viewer, with its reasons.
type Score struct {
	Ranking    string `json:"ranking"`
	Expression string `json:"expression"`
	ranking.Scored
}

// Scores says what the ranking of the name makes of a post in the viewer's home timeline now,
// all of them without a name. It is empty for a post that the viewer is not shown there.
// Error: BadInput, for a name that there is not.
//
// Cost: one query by primary key, and for each ranking as Ranking.Scores of one post.
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
	posts, err := a.posts.Posts(ctx, visibility.Home, viewer, []int64{post})
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
