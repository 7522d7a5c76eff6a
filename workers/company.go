package workers

import (
	"context"

	"tideline/ent"
	"tideline/feed/visibility"
	"tideline/internal/together"
	"tideline/queue"
)

// company is what the fan-outs of a process that run at the same time do in common: they
// ask SQL in one statement, and the pipelines of small ones go to Redis as one. Each has
// its own claim, its own looks at the truth and its own end, in its own order. What comes
// while others are served waits for these, and not for company, and for a short time only:
// what hangs holds up those who share it. An attempt that may not be the first goes alone:
// whatever one of them does to the others, it does once.
type company struct {
	pipelines *together.Pipelines
	stored    *together.Questions[visibility.Written, visibility.Stored]
}

func newCompany(v *visibility.Reader) company {
	return company{together.NewPipelines(), together.NewQuestions(v.StoredWithAuthors)}
}

// stored is visibility.Reader.StoredWithAuthor of the post of the fan-out.
func (f *fanOut) stored(ctx context.Context) (*ent.User, *ent.Post, error) {
	if f.job.Again {
		return f.w.Visibility.StoredWithAuthor(ctx, f.args.Author, f.args.Post)
	}
	s, err := f.w.company.stored.Ask(ctx, visibility.Written{Author: f.args.Author, Post: f.args.Post})
	return s.Author, s.Post, err
}

// share returns a context whose pipelines go along with others if the fan-out is small.
func (f *fanOut) share(ctx context.Context) context.Context {
	if f.author.FollowerCount > smallAudience || f.job.Pool != queue.Small || f.job.Again {
		return ctx
	}
	return f.w.company.pipelines.Share(ctx)
}
