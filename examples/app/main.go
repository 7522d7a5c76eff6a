// Command app is a small app that uses Tideline for its posts. It has its own table of
// users, signs the tokens that identify them at Tideline, and serves a page with a timeline.
//
//	make example
//
// Users sign in with a name and no password, because this is an example. Everything else
// works as in a real app.
package main

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

//go:embed page
var page embed.FS

// app handles the page's requests about accounts. For posts, the page calls Tideline
// directly.
type app struct {
	users    *users
	tideline tideline
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "example app:", err)
		os.Exit(1)
	}
}

// run serves until the context ends.
func run(ctx context.Context) error {
	addr := cmp.Or(os.Getenv("APP_ADDR"), "127.0.0.1:8090")
	table, err := openUsers(ctx, cmp.Or(os.Getenv("APP_DATABASE"), "example-app.db"))
	if err != nil {
		return err
	}
	defer table.db.Close()
	a := app{table, tideline{
		url:    strings.TrimSuffix(cmp.Or(os.Getenv("TIDELINE_URL"), "http://127.0.0.1:8080"), "/"),
		key:    os.Getenv("TIDELINE_KEY"),
		secret: []byte(os.Getenv("APP_SECRET")),
	}}
	server := &http.Server{Addr: addr, Handler: a.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	if err := a.tideline.ready(ctx); err == nil {
		fmt.Printf("The app is at http://%s/, and Tideline at %s/graphiql. Ctrl-C stops both.\n", addr, a.tideline.url)
	}
	// Retry the deletions that failed because Tideline was not available.
	for again := time.NewTicker(5 * time.Second); ; {
		if err := a.finishDeletions(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "example app: delete accounts:", err)
		}
		select {
		case err := <-failed:
			return err
		case <-again.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			return server.Shutdown(last)
		}
	}
}

func (a app) handler() http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // cannot happen: the folder is embedded
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("POST /sign-in", a.signIn)
	mux.HandleFunc("POST /sign-out", a.signOut)
	mux.HandleFunc("POST /token", a.token)
	mux.HandleFunc("POST /delete-account", a.deleteAccount)
	policy := fmt.Sprintf("default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; base-uri 'none'; "+
		"form-action 'self'; frame-ancestors 'none'; connect-src 'self' %s %s", a.tideline.url, strings.Replace(a.tideline.url, "http", "ws", 1))
	safe := http.NewCrossOriginProtection().Handler(mux) // refuses POST requests from pages of other sites
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("Cache-Control", "no-cache")
		r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
		safe.ServeHTTP(w, r)
	})
}

const cookie = "example-app"

// signIn signs in the user with the given name. Demo only: a real app asks for a password here.
func (a app) signIn(w http.ResponseWriter, r *http.Request) {
	var form struct{ Name string }
	if err := json.NewDecoder(r.Body).Decode(&form); err != nil {
		refuse(w, http.StatusBadRequest, "Send JSON with a name.")
		return
	}
	session, err := a.users.signIn(r.Context(), form.Name)
	if err != nil {
		refuseFor(w, err)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookie, Value: session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: 30 * 24 * 3600})
	w.WriteHeader(http.StatusNoContent)
}

func (a app) signOut(w http.ResponseWriter, r *http.Request) {
	if err := a.users.signOut(r.Context(), sessionOf(r)); err != nil {
		refuseFor(w, err)
		return
	}
	forget(w)
}

// token answers with a short-lived Tideline token and the address to use it at.
func (a app) token(w http.ResponseWriter, r *http.Request) {
	u, err := a.users.signedIn(r.Context(), sessionOf(r))
	if err != nil {
		refuseFor(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"token": a.tideline.token(u, time.Now()), "seconds": tokenLife.Seconds(), "graphql": a.tideline.url + "/graphql",
	})
}

// deleteAccount ends the user's sessions before it calls Tideline, so that the app signs no
// token for a deleted user. If Tideline is not available, run calls it later.
func (a app) deleteAccount(w http.ResponseWriter, r *http.Request) {
	u, err := a.users.signedIn(r.Context(), sessionOf(r))
	if err == nil {
		err = a.users.markForDeletion(r.Context(), u.id)
	}
	if err != nil {
		refuseFor(w, err)
		return
	}
	if err := a.finishDeletions(r.Context()); err != nil {
		fmt.Fprintln(os.Stderr, "example app: delete accounts, later:", err)
	}
	forget(w)
}

// finishDeletions deletes the users who asked for it: first at Tideline, all in one call,
// then in the app's table. It may be repeated.
func (a app) finishDeletions(ctx context.Context) error {
	ids, err := a.users.markedForDeletion(ctx)
	if err != nil || len(ids) == 0 {
		return err
	}
	deleted, err := a.tideline.deleteUsers(ctx, ids)
	return errors.Join(err, a.users.delete(ctx, deleted))
}

func sessionOf(r *http.Request) string {
	c, err := r.Cookie(cookie)
	if err != nil {
		return ""
	}
	return c.Value
}

func forget(w http.ResponseWriter) {
	http.SetCookie(w, &http.Cookie{Name: cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: -1})
	w.WriteHeader(http.StatusNoContent)
}

func refuseFor(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, errSignedOut):
		refuse(w, http.StatusUnauthorized, "You are signed out.")
	case errors.Is(err, errBadName):
		refuse(w, http.StatusBadRequest, "A name has 1 to 30 characters.")
	case errors.Is(err, errBeingDeleted):
		refuse(w, http.StatusConflict, "This account is being deleted.")
	default:
		fmt.Fprintln(os.Stderr, "example app:", err)
		refuse(w, http.StatusInternalServerError, "That did not work. Try again.")
	}
}

func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": why})
}
