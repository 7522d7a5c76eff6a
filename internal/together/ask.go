package together

import (
	"context"
	"errors"
)

// maxQuestions is the largest number of questions in one call.
const maxQuestions = 16

// Questions combines concurrent lookups into one call.
type Questions[Q, A any] struct {
	answer  func(context.Context, []Q) ([]A, error)
	batcher Batcher[*question[Q, A]]
}

// NewQuestions returns a Questions that calls answer with up to 16 questions. The result must have
// one answer for each question, in the same order. A call that hangs delays its own callers, and
// others for at most Patience.
func NewQuestions[Q, A any](answer func(context.Context, []Q) ([]A, error)) *Questions[Q, A] {
	return &Questions[Q, A]{answer, Batcher[*question[Q, A]]{Patience: Patience}}
}

// question is a lookup that waits for its answer or has it.
type question[Q, A any] struct {
	ctx    context.Context
	of     Q
	answer A
	err    error
}

// errNotAsked is the error of a question until its call has returned.
var errNotAsked = errors.New("the question was not asked")

// Ask returns the answer to a question. The lookup begins after the call of Ask. An error of the
// lookup is returned to all callers in the batch. Ask does not return early when its context ends.
func (q *Questions[Q, A]) Ask(ctx context.Context, of Q) (A, error) {
	mine := &question[Q, A]{ctx: ctx, of: of, err: errNotAsked}
	q.batcher.Do(mine, maxQuestions, q.answerAll)
	return mine.answer, mine.err
}

func (q *Questions[Q, A]) answerAll(batch []*question[Q, A]) {
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
