package together

import (
	"context"
	"errors"
)

// maxQuestions is how many questions are answered at once.
const maxQuestions = 16

// Questions answers the questions that goroutines ask at the same time by one call.
type Questions[Q, A any] struct {
	answer  func(context.Context, []Q) ([]A, error)
	batcher Batcher[*question[Q, A]]
}

// NewQuestions returns one that has up to 16 questions answered at once, each by what
// answer returns in its place. An answer that hangs holds up those who wait for it, and
// others for Patience.
func NewQuestions[Q, A any](answer func(context.Context, []Q) ([]A, error)) *Questions[Q, A] {
	return &Questions[Q, A]{answer, Batcher[*question[Q, A]]{Patience: Patience}}
}

// question is one that waits for its answer, or has it.
type question[Q, A any] struct {
	ctx    context.Context
	of     Q
	answer A
	err    error
}

// errNotAsked is the error of a question until it is answered.
var errNotAsked = errors.New("the question was not asked")

// Ask returns the answer to a question. What finds it begins after the call. The error is
// that of all who are answered at once. Ask does not return sooner when its context ends.
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
