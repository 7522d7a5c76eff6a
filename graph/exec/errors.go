package exec

import (
	"cmp"
	"context"
	"fmt"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// The codes that the engine itself sets in extensions.code.
const (
	CodeParseFailed           = "GRAPHQL_PARSE_FAILED"          // the document is not GraphQL
	CodeValidationFailed      = "GRAPHQL_VALIDATION_FAILED"     // the document does not fit the schema
	CodeBadUserInput          = "BAD_USER_INPUT"                // variables, arguments or the operation's name are wrong
	CodeTooComplex            = "QUERY_TOO_COMPLEX"             // the document exceeds a limit; extensions: limit and allowed
	CodePersistedNotSupported = "PERSISTED_QUERY_NOT_SUPPORTED" // the request has only a hash
	CodeInternal              = "INTERNAL"                      // anything else
)

const internalMessage = "internal server error"

func requestError(code, format string, args ...any) *gqlerror.Error {
	return &gqlerror.Error{Message: fmt.Sprintf(format, args...), Extensions: map[string]any{"code": code}}
}

func limitError(limit string, allowed int, format string, args ...any) *gqlerror.Error {
	err := requestError(CodeTooComplex, format, args...)
	err.Extensions["limit"] = limit
	err.Extensions["allowed"] = allowed
	return err
}

func at(err *gqlerror.Error, pos *ast.Position) *gqlerror.Error {
	if pos != nil {
		err.Locations = []gqlerror.Location{{Line: pos.Line, Column: pos.Column}}
	}
	return err
}

// present returns the error that the client receives for err. The caller may set its path and locations.
func (e *Engine) present(ctx context.Context, err error) *gqlerror.Error {
	var shown gqlerror.Error
	if e.cfg.ErrorPresenter != nil {
		if p := e.cfg.ErrorPresenter(ctx, err); p != nil {
			shown = *p
		}
	}
	shown.Message = cmp.Or(shown.Message, internalMessage)
	if shown.Extensions["code"] == nil {
		extensions := map[string]any{"code": CodeInternal}
		for k, v := range shown.Extensions {
			if k != "code" {
				extensions[k] = v
			}
		}
		shown.Extensions = extensions
	}
	return &shown
}

// recovered turns the result of recover() into an error. The deferred function must call it directly.
func (e *Engine) recovered(ctx context.Context, panicked any) error {
	if err := e.cfg.Recover(ctx, panicked); err != nil {
		return err
	}
	return fmt.Errorf("panic: %v", panicked)
}
