package batch

import (
	"context"
	"errors"
)

// maxQuestions is the largest number of questions in one call.
const maxQuestions = 16

// Loader combines concurrent lookups into one call.
type Loader[Q, A any] struct {
	answer  func(context.Context, []Q) ([]A, error)
	batcher Batcher[*load[Q, A]]
}

// NewLoader returns a Loader that calls answer with up to 16 questions. The result must have
// one answer for each question, in the same order. A call that hangs delays its own callers, and
// others for at most MaxWait.
func NewLoader[Q, A any](answer func(context.Context, []Q) ([]A, error)) *Loader[Q, A] {
	return &Loader[Q, A]{answer, Batcher[*load[Q, A]]{MaxWait: MaxWait}}
}

// question is a lookup that waits for its answer or has it.
type load[Q, A any] struct {
	ctx    context.Context
	of     Q
	answer A
	err    error
}

// errNotAsked is the error of a question until its call has returned.
var errNotAsked = errors.New("the question was not asked")

// Load returns the answer to a question. The lookup begins after the call of Load. An error of the
// lookup is returned to all callers in the batch. Load does not return early when its context ends.
func (q *Loader[Q, A]) Load(ctx context.Context, of Q) (A, error) {
	mine := &load[Q, A]{ctx: ctx, of: of, err: errNotAsked}
	q.batcher.Do(mine, maxQuestions, q.answerAll)
	return mine.answer, mine.err
}

func (q *Loader[Q, A]) answerAll(batch []*load[Q, A]) {
	of, contexts := make([]Q, len(batch)), make([]context.Context, len(batch))
	for i, one := range batch {
		of[i], contexts[i] = one.of, one.ctx
	}
	ctx, stop := Context(contexts)
	defer stop()
	list, err := q.answer(ctx, of)
	for i, one := range batch {
		if one.err = err; err == nil {
			one.answer = list[i]
		}
	}
}
