// Command app is a small app that has Tideline beside it. It has its own table of users,
// tokens of its own by which they are known at Tideline, and a page with a timeline.
//
//	make example
//
// Its users sign in by their name alone, for it is an example. The rest is as in an app
// that people use.
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

// app answers the page's own requests. What has to do with posts the page asks
// Tideline itself.
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
	// What was not to be had when an account was deleted is tried again.
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
		panic(err) // it is embedded
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("POST /sign-in", a.signIn)
	mux.HandleFunc("POST /sign-out", a.signOut)
	mux.HandleFunc("POST /token", a.token)
	mux.HandleFunc("POST /delete-account", a.deleteAccount)
	policy := fmt.Sprintf("default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; base-uri 'none'; "+
		"form-action 'self'; frame-ancestors 'none'; connect-src 'self' %s %s", a.tideline.url, strings.Replace(a.tideline.url, "http", "ws", 1))
	safe := http.NewCrossOriginProtection().Handler(mux) // no other site's page posts for our users
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("Cache-Control", "no-cache")
		r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
		safe.ServeHTTP(w, r)
	})
}

const cookie = "example-app"

// signIn signs in who says that this is the name. An app that people use asks for a
// password here.
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

// token answers with what the page needs to talk to Tideline for a few minutes.
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

// deleteAccount ends the user's sessions before it tells Tideline, so that no token is
// made for somebody who is gone there. When Tideline is away it is told later.
func (a app) deleteAccount(w http.ResponseWriter, r *http.Request) {
	u, err := a.users.signedIn(r.Context(), sessionOf(r))
	if err == nil {
		err = a.users.leave(r.Context(), u.id)
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

// finishDeletions deletes those who want to leave: at Tideline, by one call for all of
// them, and then from the table. It may be repeated.
func (a app) finishDeletions(ctx context.Context) error {
	ids, err := a.users.leaving(ctx)
	if err != nil || len(ids) == 0 {
		return err
	}
	if err := a.tideline.deleteUsers(ctx, ids); err != nil {
		return err
	}
	return a.users.delete(ctx, ids)
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
	case errors.Is(err, errName):
		refuse(w, http.StatusBadRequest, "A name has 1 to 30 characters.")
	case errors.Is(err, errLeaving):
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
