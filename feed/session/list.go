package session

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"tideline/ent"
	"tideline/ent/session"
	"tideline/feed/paging"
	"tideline/feed/refusal"
)

// MaxUserAgent is how many characters of a client's user agent are stored.
const MaxUserAgent = 200

type userAgentKey struct{}

// WithUserAgent returns a context that carries the client's user agent for log-ins. It keeps up
// to MaxUserAgent characters, without control characters.
func WithUserAgent(ctx context.Context, agent string) context.Context {
	if agent == "" {
		return ctx
	}
	clean := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, agent[:min(len(agent), 4*MaxUserAgent)])
	runes := []rune(clean)
	return context.WithValue(ctx, userAgentKey{}, string(runes[:min(len(runes), MaxUserAgent)]))
}

func userAgent(ctx context.Context) string {
	agent, _ := ctx.Value(userAgentKey{}).(string)
	return agent
}

// Session is a session as its user sees it. All tokens that an issuer gave the user are one
// session.
type Session struct {
	ID                   string // global
	CreatedAt, ExpiresAt time.Time
	Current              bool    // the call is made with this session
	UserAgent            *string // nil if the client sent none, and for tokens of an issuer

	row int64
}

// List returns a page of the viewer's open sessions, newest first. It returns nil unless the
// viewer is the owner. A page has at most most entries. Error: BadInput.
//
// Cost: an index range of the user's sessions.
func (s *Store) List(ctx context.Context, v Viewer, owner int64, p paging.Page, most int) (*paging.Connection[Session], error) {
	if v.ID != owner {
		return nil, nil
	}
	w, err := paging.Open(p, paging.Sessions, owner, most)
	if err != nil {
		return nil, err
	}
	r := w.Range()
	q := s.cfg.DB.Session.Query().Where(session.UserID(owner), session.ExpiresAtGT(s.now())).Order(ent.Desc(session.FieldID)).Limit(r.Limit)
	if w.After != nil {
		q.Where(session.IDLT(r.Upper()))
	}
	found, err := q.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	list := make([]*Session, len(found))
	for i, row := range found {
		list[i] = &Session{
			ID: ent.NodeID(sessionKind, row.ID), CreatedAt: row.CreatedAt, ExpiresAt: row.ExpiresAt, Current: row.ID == v.Session, row: row.ID,
		}
		if row.UserAgent != "" {
			list[i].UserAgent = &row.UserAgent
		}
	}
	return paging.ConnectBy(w, list, paging.Sessions, owner, func(s *Session) int64 { return s.row }), nil
}

const sessionKind = "Session"

// End ends one of the viewer's sessions, as LogOut does. Errors: Unauthenticated; BadInput;
// NotFound, also for a session of another user.
//
// Cost: as LogOut.
func (s *Store) End(ctx context.Context, v Viewer, id string) error {
	if v.ID == 0 {
		return refusal.ErrSignIn
	}
	kind, row, ok := ent.ParseNodeID(id)
	if !ok || kind != sessionKind {
		return refusal.New(refusal.NotAnID, "That is not the id of a session.")
	}
	found, err := s.end(ctx, v.ID, row)
	if err == nil && !found {
		err = refusal.New(refusal.NoSuchSession, "There is no such session.")
	}
	return err
}

// LogOutEverywhere ends all sessions of the viewer, as SignOut does. Error: Unauthenticated.
func (s *Store) LogOutEverywhere(ctx context.Context, v Viewer) (ended int, err error) {
	if v.ID == 0 {
		return 0, refusal.ErrSignIn
	}
	ended, err = s.SignOut(ctx, v.ID)
	if refusal.CodeOf(err) == refusal.NotFound {
		err = refusal.ErrSignIn
	}
	return ended, err
}
