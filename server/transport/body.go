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
	// freeBody is how many bytes of a body are read at no charge, freeMessage how many
	// of a message on a socket, of which there can be more at once. Larger ones draw
	// on the budget that all share.
	freeBody    = 16 << 10
	freeMessage = 4 << 10
	// bodyBudget is how many bytes of large bodies and messages a process has in
	// memory at once: clients that send them slowly cannot fill the memory.
	bodyBudget = 32 << 20
	// maxLasting bounds the document and the variables of a subscription, in bytes:
	// they live as long as it does.
	maxLasting = 16 << 10
)

// tooLarge refuses a subscription that would keep too much in memory. Variables
// count by the bytes of their JSON.
func tooLarge(r exec.Request) gqlerror.List {
	variables, err := json.Marshal(r.Variables)
	if err == nil && len(r.Query)+len(variables) <= maxLasting {
		return nil
	}
	errs := requestError(exec.CodeTooComplex, "A subscription may have at most %d bytes of document and variables.", maxLasting)
	errs[0].Extensions["limit"], errs[0].Extensions["allowed"] = "bytes", maxLasting
	return errs
}

// readBody reads the body of a request; release as of [limit.ReadAll]. A body whose length is
// declared as too large is refused before any of it is read.
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
