package admin

import (
	"context"
	"net/http"
	"strings"

	"tideline/feed/moderation"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/server/limit"
)

// errKey refuses API keys: they act within scopes, and no scope covers the admin page.
var errKey = refusal.New(refusal.NotByKey, "An API key does not open the admin page.")

// admin returns the admin who makes the request. Errors: Unauthenticated; Unavailable; Forbidden
// if the user is not an admin now.
func (p *Page) admin(r *http.Request) (v session.Viewer, err error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return v, refusal.ErrSignIn
	}
	if v, err = p.identify(r, token); err != nil {
		return v, err
	}
	if v.Key != nil {
		return v, errKey
	}
	return v, p.cfg.Moderation.DemandAdmin(r.Context(), moderation.By(v))
}

// identify returns the user of a token. It refuses an address that has shown too many wrong tokens,
// under the same limit as the API.
func (p *Page) identify(r *http.Request, token string) (v session.Viewer, err error) {
	v, _, known := p.cfg.Login.Recall(token)
	if known {
		return v, nil
	}
	done, refused := p.cfg.Limits.Attempt(r.Context(), limit.AddressOf(r.RemoteAddr))
	if refused != nil {
		return v, refused
	}
	defer func() { done(refusal.IsWrongCredential(err)) }()
	v, _, err = p.cfg.Login.Authenticate(r.Context(), token)
	return v, err
}

// logIn starts a session as the API does, under the same rate limits. It ends the session at once
// if the user is not an admin.
func (p *Page) logIn(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), logInFor)
	defer cancel()
	r = r.WithContext(ctx)
	client := limit.Client{Address: limit.AddressOf(r.RemoteAddr)}
	if refused := p.cfg.Limits.Allow(ctx, client, limit.Demand{Accounts: 1, Cost: limit.LeastCost}); refused != nil {
		p.answer(w, r, nil, refused)
		return
	}
	result, err := p.begin(r)
	p.answer(w, r, result, err)
}

func (p *Page) begin(r *http.Request) (any, error) {
	var who struct{ Handle, Password string }
	if err := read(r, &who); err != nil {
		return nil, err
	}
	ctx := session.WithUserAgent(r.Context(), r.UserAgent())
	auth, err := p.cfg.Login.LogIn(ctx, who.Handle, who.Password)
	if err != nil {
		return nil, err
	}
	v, _, err := p.cfg.Login.Authenticate(ctx, auth.Token)
	if err != nil {
		return nil, err
	}
	if err := p.cfg.Moderation.DemandAdmin(ctx, moderation.By(v)); err != nil {
		_ = p.cfg.Sessions.LogOut(ctx, v) // if this fails, the session expires by itself
		return nil, err
	}
	return map[string]any{"token": auth.Token, "expiresAt": auth.ExpiresAt, "handle": auth.User.Handle}, nil
}

func (p *Page) whoami(r *http.Request, v session.Viewer) (any, error) {
	users, err := p.cfg.Directory.Users(r.Context(), []int64{v.ID})
	if err != nil {
		return nil, err
	}
	if users[0] == nil {
		return nil, refusal.ErrSignIn
	}
	return map[string]any{"handle": users[0].Handle}, nil
}

func (p *Page) logOut(r *http.Request, v session.Viewer) (any, error) {
	return map[string]any{}, p.cfg.Sessions.LogOut(r.Context(), v)
}
