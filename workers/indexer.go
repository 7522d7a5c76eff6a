package workers

import (
	"context"

	"tideline/feed"
	"tideline/feed/account"
)

// indexPage is how many users, or words, the indexer takes at a time.
const indexPage = 500

// index brings what processes of earlier versions wrote into the present form: it makes users be
// found by their names, and rewrites muted words.
func (w *Workers) index(ctx context.Context) {
	for _, step := range []struct {
		what string
		do   func(context.Context) (int, error)
	}{
		{"names", func(ctx context.Context) (int, error) { return account.IndexNames(ctx, w.DB, indexPage) }},
		{"muted words", func(ctx context.Context) (int, error) { return feed.FoldMutedWords(ctx, w.DB, w.Queue, indexPage) }},
	} {
		all := 0
		for n := indexPage; n == indexPage; all += n {
			var err error
			if n, err = step.do(ctx); err != nil {
				if ctx.Err() == nil {
					w.Logger.WarnContext(ctx, "rows of an earlier version not indexed", "of", step.what, "error", err)
				}
				break
			}
		}
		if all > 0 {
			w.Logger.InfoContext(ctx, "rows of an earlier version indexed", "of", step.what, "rows", all)
		}
	}
}
