package server

import (
	"net/http"
	"time"

	"tideline/feed/account"
	"tideline/feed/refusal"
)

// serveExport streams all that is kept of a user to who has the path of it. A download that
// breaks off has no last line, and the connection ends without the end of the body.
func (p *process) serveExport(sessions *account.Sessions) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user, err := sessions.TakeExport(r.Context(), r.URL.Query().Get("secret"))
		if refusal.CodeOf(err) != "" {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		if err != nil {
			p.log.ErrorContext(r.Context(), "export not begun", "error", err)
			http.Error(w, "The export cannot be made now.", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.Header().Set("Content-Disposition", `attachment; filename="account.ndjson"`)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if err := sessions.Export(r.Context(), user, patient{w}); err != nil && r.Context().Err() == nil {
			p.log.ErrorContext(r.Context(), "export broken off", "error", err)
			panic(http.ErrAbortHandler)
		}
	}
}

// patient lets an answer take as long as it goes on.
type patient struct{ http.ResponseWriter }

func (p patient) Write(line []byte) (int, error) {
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(time.Now().Add(writeSlack)) // else the usual one holds
	return p.ResponseWriter.Write(line)
}
