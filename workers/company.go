package workers

import (
	"context"
	"errors"

	"tideline/ent"
	"tideline/feed/visibility"
	"tideline/queue"
	"tideline/together"
)

// company is what the fan-outs of a process that run at the same time do in common: they
// ask SQL in one statement, and the pipelines of small ones go to Redis as one. Each has
// its own claim, its own looks at the truth and its own end, in its own order; what comes
// while others are served waits for these, and not for company, and for a short time only: what hangs holds
// up those who share it.
type company struct {
	pipelines *together.Pipelines
	stored    together.Batcher[*question[visibility.Written, visibility.Stored]]
	audiences together.Batcher[*question[visibility.Followed, visibility.Page]]
}

func newCompany() *company {
	c := &company{pipelines: together.NewPipelines()}
	c.stored.Patience, c.audiences.Patience = together.Patience, together.Patience
	return c
}

const (
	// smallFanOut is the most followers of an author whose fan-outs share pipelines: these
	// stay as short as those of one page of a large fan-out, which nobody waits for.
	smallFanOut = 250
	// maxQuestions is how many questions one statement answers.
	maxQuestions = 16
)

// question is what is asked of SQL, with its answer.
type question[Q, A any] struct {
	ctx    context.Context
	of     Q
	answer A
	err    error
}

// errNotAsked is the error of a question until it is answered.
var errNotAsked = errors.New("the question was not asked")

// ask has a question answered together with those that others ask at the same time.
func ask[Q, A any](ctx context.Context, b *together.Batcher[*question[Q, A]], of Q, answers func(context.Context, []Q) ([]A, error)) (A, error) {
	mine := &question[Q, A]{ctx: ctx, of: of, err: errNotAsked}
	b.Do(mine, maxQuestions, func(batch []*question[Q, A]) {
		of, contexts := make([]Q, len(batch)), make([]context.Context, len(batch))
		for i, q := range batch {
			of[i], contexts[i] = q.of, q.ctx
		}
		ctx, stop := together.Context(contexts)
		defer stop()
		list, err := answers(ctx, of)
		for i, q := range batch {
			if q.err = err; err == nil {
				q.answer = list[i]
			}
		}
	})
	return mine.answer, mine.err
}

// stored is visibility.Reader.StoredWithAuthor.
func (w *Workers) stored(ctx context.Context, author, post int64) (*ent.User, *ent.Post, error) {
	of := visibility.Written{Author: author, Post: post}
	s, err := ask(ctx, &w.company.stored, of, w.Visibility.StoredWithAuthors)
	return s.Author, s.Post, err
}

// firstPage is the first page of visibility.Reader.Audience, for an author with few
// followers.
func (w *Workers) firstPage(ctx context.Context, author int64, c visibility.PostChange, limit int) ([]visibility.Follower, int64, error) {
	of := visibility.Followed{Author: author, Change: c, Limit: limit}
	p, err := ask(ctx, &w.company.audiences, of, w.Visibility.Audiences)
	return p.Followers, p.Next, err
}

// share returns the context of a round: the pipelines of a small fan-out go along with
// others.
func (f *fanOut) share(ctx context.Context) context.Context {
	if f.author.FollowerCount > smallFanOut || f.job.Pool != queue.Small {
		return ctx
	}
	return f.w.company.pipelines.Share(ctx)
}
