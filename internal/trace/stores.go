package trace

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"
)

const (
	maxName      = 64  // bytes of a name that a client chooses
	maxStatement = 500 // bytes of a statement
)

// Statement begins the span of a SQL statement, without its arguments. The system is postgresql or
// sqlite.
func Statement(ctx context.Context, system, statement string) (context.Context, *Span) {
	if placeOf(ctx) == nil {
		return ctx, nil
	}
	verb, _, _ := strings.Cut(strings.TrimSpace(statement), " ")
	ctx, s := begin(ctx, trace.SpanKindClient, strings.ToUpper(clip(verb, maxName)), "")
	s.Text("db.system.name", system)
	s.Text("db.query.text", clip(statement, maxStatement))
	return ctx, s
}

// Commands is a go-redis hook that adds a span for each traced command and pipeline.
type Commands struct{}

// DialHook implements redis.Hook.
func (Commands) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (Commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if placeOf(ctx) == nil {
			return next(ctx, cmd)
		}
		ctx, s := begin(ctx, trace.SpanKindClient, strings.ToUpper(cmd.Name()), "")
		s.Text("db.system.name", "redis")
		err := next(ctx, cmd)
		s.End(failure(err))
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (Commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if placeOf(ctx) == nil {
			return next(ctx, cmds)
		}
		ctx, s := begin(ctx, trace.SpanKindClient, "PIPELINE", "")
		s.Text("db.system.name", "redis")
		s.Int("db.operation.batch.size", int64(len(cmds)))
		err := next(ctx, cmds)
		s.End(failure(err))
		return err
	}
}

// failure returns err, or nil if err is redis.Nil, which is a normal reply.
func failure(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// codeOf returns a stable code for an error, independent of its text. It is the code of the store
// if there is one.
func codeOf(err error) string {
	var state interface{ SQLState() string } // of PostgreSQL
	var code interface{ Code() int }         // of SQLite
	var answer redis.Error
	var wire net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.As(err, &state):
		return state.SQLState()
	case errors.As(err, &code):
		return "SQLITE_" + strconv.Itoa(code.Code())
	case errors.As(err, &answer):
		first, _, _ := strings.Cut(answer.Error(), " ")
		return clip(first, maxName)
	case errors.As(err, &wire) && wire.Timeout():
		return "timeout"
	}
	return "_OTHER" // OpenTelemetry's word for an error without a code
}

// clip cuts a text to at most most bytes, at a rune boundary.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
