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

// longestDownload is how long a download may take: a client that reads ten megabits a second gets two
// gigabytes, which is the data of some million posts.
const longestDownload = 30 * time.Minute

// serveExport streams all data of a user to a client that has the export's secret path. The path expires only
// after the whole file was sent: a HEAD request or an interrupted download leaves it valid. An interrupted
// download lacks the last line, and the connection ends without the end of the body. A download that
// takes longer than within is interrupted.
func (p *process) serveExport(logins *login.Login, accounts *account.Accounts, within time.Duration) http.HandlerFunc {
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
		if r.Method != http.MethodHead {
			giveBack, refused := p.limits.Download(offer.User)
			if refused != nil {
				transport.Refuse(w, refused)
				return
			}
			defer giveBack()
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.Header().Set("Content-Disposition", `attachment; filename="account.ndjson"`)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if r.Method == http.MethodHead {
			return
		}
		until := time.Now().Add(within)
		exporting, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		err = accounts.Export(exporting, offer.User, patient{w, until})
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

// patient extends the write deadline with each line, so that a client may read slowly while it makes
// progress, but not beyond until.
type patient struct {
	http.ResponseWriter
	until time.Time
}

func (p patient) Write(line []byte) (int, error) {
	deadline := time.Now().Add(writeSlack)
	if deadline.After(p.until) {
		deadline = p.until
	}
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(deadline) // if this fails, the server's deadline holds
	return p.ResponseWriter.Write(line)
}
