package workers

import (
	"context"

	"tideline/feed/account"
)

// indexPage is how many users the indexer handles in one step.
const indexPage = 500

// index adds the search words of users who were created without them, for example by the command
// seed.
func (w *Workers) index(ctx context.Context) {
	all := 0
	for n := indexPage; n == indexPage; all += n {
		var err error
		if n, err = account.IndexNames(ctx, w.DB, indexPage); err != nil {
			if ctx.Err() == nil {
				w.Logger.WarnContext(ctx, "names of users not indexed", "error", err)
			}
			break
		}
	}
	if all > 0 {
		w.Logger.InfoContext(ctx, "names of users indexed", "users", all)
	}
}
