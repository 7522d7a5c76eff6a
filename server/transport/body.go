package transport

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/vektah/gqlparser/v2/gqlerror"

	"tideline/graph/exec"
	"tideline/server/limit"
	"tideline/server/transport/incoming"
)

const (
	// freeBody is how many bytes of a body are read without charge. freeMessage is the same for a message on
	// a socket; it is smaller because there can be more of them. Larger ones are charged to bodyBudget.
	freeBody    = 16 << 10
	freeMessage = 4 << 10
	// bodyBudget bounds the bytes of large bodies and messages that a process holds at once, so that clients
	// that send them slowly cannot fill the memory.
	bodyBudget = 32 << 20
	// maxLasting bounds the document and the variables of a subscription, in bytes, since they stay in
	// memory as long as the subscription.
	maxLasting = 16 << 10
)

// tooLarge refuses a subscription that would keep too much in memory. Variables are measured as JSON.
func tooLarge(r exec.Request) gqlerror.List {
	variables, err := json.Marshal(r.Variables)
	if err == nil && len(r.Query)+len(variables) <= maxLasting {
		return nil
	}
	errs := requestError(exec.CodeTooComplex, "A subscription may have at most %d bytes of document and variables.", maxLasting)
	errs[0].Extensions["limit"], errs[0].Extensions["allowed"] = "bytes", maxLasting
	return errs
}

// readBody reads the body of a request. release is as in [limit.ReadAll]. A body with a declared length that
// is too large is refused before any of it is read.
func (a *api) readBody(w http.ResponseWriter, r *http.Request) (request exec.Request, release func(), err error) {
	if most := int64(a.config.MaxBody); r.ContentLength > most {
		return request, func() {}, &http.MaxBytesError{Limit: most}
	}
	reader := http.MaxBytesReader(w, r.Body, int64(a.config.MaxBody))
	body, release, err := limit.ReadAll(reader, a.bodies, int(max(min(r.ContentLength, freeBody)+1, 512)), freeBody)
	if err == nil {
		request, err = incoming.Parse(body)
		return request, release, err
	}
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) || errors.Is(err, limit.ErrBusy) {
		return request, release, err
	}
	return request, release, errors.New("its body ended early")
}
