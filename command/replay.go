package command

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode"

	"tideline/feed/account"
	"tideline/feed/audit"
	"tideline/server"
)

type feedsReplay struct {
	User    string `arg:"" help:"Handle, id or number of the user."`
	Rank    string `env:"-" required:"" placeholder:"NAME" help:"The ranking to look at."`
	Against string `env:"-" default:"hot" help:"The ranking to compare it with."`
	First   int    `env:"-" default:"20" help:"Print the posts that are among the first N of one of them."`
	JSON    bool   `env:"-" name:"json" help:"As a JSON object."`
}

// replayed is a post of a replay in the JSON output.
type replayed struct {
	Post         int64   `json:"post"`
	At           int     `json:"at"`
	AtAgainst    int     `json:"atAgainst"`
	Moved        int     `json:"moved"` // places up
	Score        float64 `json:"score"`
	ScoreAgainst float64 `json:"scoreAgainst"`
	Author       string  `json:"author"`
	Excerpt      string  `json:"excerpt"`
}

func (f feedsReplay) Run(ctx context.Context, c server.Config, console server.Console) error {
	if f.First < 1 {
		return fmt.Errorf("--first is %d: it must be 1 or more", f.First)
	}
	return withAudit(ctx, c, console, func(audit *audit.Audit, people *account.Directory) error {
		u, err := userNamed(ctx, people, f.User)
		if err != nil {
			return err
		}
		r, err := audit.Replay(ctx, u.ID, f.Rank, f.Against)
		if err != nil {
			return err
		}
		list, err := f.list(ctx, people, r)
		if err != nil {
			return err
		}
		first := min(f.First, len(r.Posts))
		if f.JSON {
			return json.NewEncoder(console.Out).Encode(map[string]any{
				"user": u.Handle, "rank": r.Rank, "against": r.Against, "posts": list,
				"ranked": len(r.Posts), "tau": r.Tau(), "first": first, "shared": r.Shared(first),
			})
		}
		table := tabwriter.NewWriter(console.Out, 0, 0, 2, ' ', 0)
		rank, against := strings.ToUpper(r.Rank), strings.ToUpper(r.Against)
		fmt.Fprintf(table, "%s\t%s\tMOVED\t%s SCORE\t%s SCORE\tAUTHOR\tTEXT\n", rank, against, rank, against)
		for _, p := range list {
			fmt.Fprintf(table, "%d\t%d\t%+d\t%.8g\t%.8g\t@%s\t%s\n", p.At, p.AtAgainst, p.Moved, p.Score, p.ScoreAgainst, p.Author, p.Excerpt)
		}
		if err := table.Flush(); err != nil {
			return err
		}
		fmt.Fprintf(console.Out, "%s ranked: Kendall's tau %.3f; the first %d of both share %d\n", count(len(r.Posts), "post", "posts"), r.Tau(), first, r.Shared(first))
		return nil
	})
}

// list returns the posts that are among the first of one of the two rankings.
func (f feedsReplay) list(ctx context.Context, people *account.Directory, r *audit.Replay) ([]replayed, error) {
	list, authors := []replayed{}, []int64{}
	for _, p := range r.Posts {
		if min(p.At, p.AtAgainst) <= f.First {
			list = append(list, replayed{
				Post: p.Post.ID, At: p.At, AtAgainst: p.AtAgainst, Moved: p.AtAgainst - p.At,
				Score: p.Score, ScoreAgainst: p.ScoreAgainst, Author: "", Excerpt: excerpt(p.Post.Text),
			})
			authors = append(authors, p.Post.AuthorID)
		}
	}
	users, err := people.Users(ctx, authors)
	if err != nil {
		return nil, err
	}
	for i, u := range users {
		if u != nil { // nil if the author's account has been deleted since
			list[i].Author = u.Handle
		}
	}
	return list, nil
}

// maxExcerpt is the number of characters that are printed of a text.
const maxExcerpt = 40

// excerpt returns the beginning of a text in one line, without control characters.
func excerpt(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) })
	line := []rune(strings.Join(words, " "))
	if len(line) > maxExcerpt {
		return string(line[:maxExcerpt-1]) + "…"
	}
	return string(line)
}
