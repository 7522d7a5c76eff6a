package server

import (
	"context"
	"net/http"
	"time"

	"tideline/feed/account"
	"tideline/feed/login"
	"tideline/feed/refusal"
	"tideline/server/limit"
	"tideline/server/transport"
)

// serveExport streams all data of a user to a client that has the export's secret path. The path expires only
// after the whole file was sent: a HEAD request or an interrupted download leaves it valid. An interrupted
// download lacks the last line, and the connection ends without the end of the body.
func (p *process) serveExport(logins *login.Login, accounts *account.Accounts) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		offer, err := p.findExport(r, logins)
		if transport.Refuse(w, err) {
			return
		}
		if err != nil {
			p.log.ErrorContext(ctx, "export not begun", "error", err)
			http.Error(w, "The export cannot be made now.", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.Header().Set("Content-Disposition", `attachment; filename="account.ndjson"`)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if r.Method == http.MethodHead {
			return
		}
		err = accounts.Export(ctx, offer.User, patient{w})
		if err == nil {
			err = http.NewResponseController(w).Flush()
		}
		if err != nil || ctx.Err() != nil {
			if ctx.Err() == nil {
				p.log.ErrorContext(ctx, "export broken off", "error", err)
			}
			panic(http.ErrAbortHandler)
		}
		if err := logins.EndExport(context.WithoutCancel(ctx), offer); err != nil {
			p.log.WarnContext(ctx, "export not ended; its path ends by itself", "error", err)
		}
	}
}

// findExport finds the export that a request asks for, under the limits of its address. A download counts as
// a log-in, since it reads all data of a user.
func (p *process) findExport(r *http.Request, logins *login.Login) (offer login.Offer, err error) {
	ctx, address := r.Context(), limit.AddressOf(r.RemoteAddr)
	done, refused := p.limits.Attempt(ctx, address)
	if refused != nil {
		return offer, refused
	}
	defer func() { done(refusal.IsWrongCredential(err)) }()
	if offer, err = logins.FindExport(ctx, r.URL.Query().Get("secret")); err != nil {
		return offer, err
	}
	demand := limit.Demand{Cost: limit.LeastCost}
	if r.Method != http.MethodHead {
		demand.Accounts = 1
	}
	if refused := p.limits.Allow(ctx, limit.Client{User: offer.User, Address: address}, demand); refused != nil {
		return offer, refused
	}
	return offer, nil
}

// patient extends the write deadline with each line, so that an export may take any time
// while it makes progress.
type patient struct{ http.ResponseWriter }

func (p patient) Write(line []byte) (int, error) {
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(time.Now().Add(writeSlack)) // if this fails, the server's deadline holds
	return p.ResponseWriter.Write(line)
}
