package server

import (
	"context"
	"io"
	"log/slog"

	"tideline/internal/trace"
	"tideline/server/transport"
)

// newLogger returns a logger that writes records of the level ("debug" to "error") and above to w, as
// JSON or as text. A record logged with the context of a request has the request's id, and the trace
// id if the request is traced.
func newLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, err
	}
	options := &slog.HandlerOptions{Level: least}
	if format == "json" {
		options.ReplaceAttr = inSeconds
		return slog.New(contextHandler{slog.NewJSONHandler(w, options)}), nil
	}
	return slog.New(contextHandler{slog.NewTextHandler(w, options)}), nil
}

// inSeconds appends the unit to the key of a duration, since JSON has only numbers.
func inSeconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.Float64(a.Key+"_seconds", a.Value.Duration().Seconds())
	}
	return a
}

// contextHandler adds the ids of the request and of the trace to each record.
type contextHandler struct{ slog.Handler }

func (h contextHandler) Handle(ctx context.Context, record slog.Record) error {
	if id := transport.RequestID(ctx); id != "" {
		record.AddAttrs(slog.String("request", id))
	}
	if id := trace.ID(ctx); id != "" {
		record.AddAttrs(slog.String("trace_id", id))
	}
	return h.Handler.Handle(ctx, record)
}

func (h contextHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return contextHandler{h.Handler.WithAttrs(attrs)}
}

func (h contextHandler) WithGroup(name string) slog.Handler {
	return contextHandler{h.Handler.WithGroup(name)}
}
