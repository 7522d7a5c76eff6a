// Package moderation lets moderators and admins enforce the rules of a server.
//
// Every action except Claim is written into the audit log, in the transaction that performs it. Operate, which
// changes things outside SQL, writes the entry before.
package moderation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tideline/ent"
	"tideline/ent/auditentry"
	"tideline/ent/hiddenuser"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/apikey"
	"tideline/feed/internal/rows"
	"tideline/feed/internal/text"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/webhook"
	"tideline/internal/errs"
)

// MaxNote bounds the characters of a note.
const MaxNote = 1000

var noteField = text.Field{What: "The note", Name: "note", Limit: "noteLength", Most: MaxNote}

// Config configures Moderation. Fields without a default are required.
type Config struct {
	DB       *ent.Client
	Accounts *account.Accounts
	Feed     *feed.Feed // hides posts and returns reported ones
	// Webhooks records events of reports. Nil records nothing.
	Webhooks *webhook.Outbox
	// Now defaults to time.Now.
	Now func() time.Time
	// MaxPage is the largest number of entries of a page. Defaults to paging.DefaultMaxSize.
	MaxPage int
}

// Moderation performs the actions of moderators and admins. It is safe for concurrent use.
type Moderation struct{ cfg Config }

// New returns the Moderation. It fails when a required field is missing.
func New(c Config) (*Moderation, error) {
	if c.DB == nil || c.Accounts == nil || c.Feed == nil {
		return nil, errors.New("moderation: DB, Accounts and Feed are required")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.MaxPage = cmp.Or(c.MaxPage, paging.DefaultMaxSize)
	return &Moderation{c}, nil
}

// Actor performs an action. It is a viewer, or the command line, which may do everything.
type Actor struct {
	ID int64 // 0 for the command line, and for a viewer who is not signed in
	// Key is the API key with which a server acts for the user; nil without one.
	Key     *apikey.Key
	Console bool
}

// Console is the command line.
var Console = Actor{Console: true}

// By returns the actor of a viewer's call.
func By(v session.Viewer) Actor { return Actor{ID: v.ID, Key: v.Key} }

// ranks orders the roles. Each role may do everything that lower roles may do.
var ranks = map[user.Role]int{user.RoleUSER: 0, user.RoleMODERATOR: 1, user.RoleADMIN: 2}

// Role returns the role of a user. Error: NotFound.
//
// Cost: a look-up by primary key.
func (m *Moderation) Role(ctx context.Context, id int64) (user.Role, error) {
	u, err := m.cfg.DB.User.Query().Where(user.ID(id)).Select(user.FieldRole).Only(ctx)
	if ent.IsNotFound(err) {
		return "", refusal.ErrNoSuchUser
	}
	if err != nil {
		return "", fmt.Errorf("read role: %w", err)
	}
	return u.Role, nil
}

// Roles returns the roles of the users with the ids, in their order. An entry is nil if there is no such
// user, or if the actor may not know the role: admins know every role, others only their own.
//
// Cost: one query, and a look-up of the actor's role if there is another user among them.
func (m *Moderation) Roles(ctx context.Context, who Actor, ids []int64) ([]*user.Role, error) {
	known := ids
	if slices.ContainsFunc(ids, func(id int64) bool { return id != who.ID }) {
		switch err := m.DemandAdmin(ctx, who); refusal.CodeOf(err) {
		case refusal.Forbidden, refusal.Unauthenticated:
			known = []int64{who.ID}
		default:
			if err != nil {
				return nil, err
			}
		}
	}
	list, err := m.cfg.DB.User.Query().Where(rows.Among(user.FieldID, known)).Select(user.FieldID, user.FieldRole).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read roles: %w", err)
	}
	roles := make([]*user.Role, len(ids))
	for i, u := range rows.InOrder(ids, list, func(u *ent.User) int64 { return u.ID }) {
		if u != nil {
			roles[i] = &u.Role
		}
	}
	return roles, nil
}

// DemandAdmin returns an error unless the actor is an admin now. Errors: Unauthenticated,
// Forbidden.
//
// Cost: a look-up by primary key.
func (m *Moderation) DemandAdmin(ctx context.Context, who Actor) error {
	_, err := m.demand(ctx, who, user.RoleADMIN)
	return err
}

// demand returns the rank of the actor's role. It refuses an actor whose role is lower than least,
// and an API key without the scope for moderation. Errors: Unauthenticated, Forbidden.
func (m *Moderation) demand(ctx context.Context, who Actor, least user.Role) (int, error) {
	if who.Console {
		return len(ranks), nil
	}
	if who.ID == 0 {
		return 0, refusal.ErrSignIn
	}
	if who.Key != nil && !who.Key.Has(apikey.Moderate) {
		return 0, refusal.New(refusal.ScopeMissing, "This takes an API key with the scope %s.", apikey.Moderate)
	}
	role, err := m.Role(ctx, who.ID)
	if refusal.CodeOf(err) == refusal.NotFound { // deleted meanwhile
		return 0, refusal.ErrSignIn
	}
	if err != nil {
		return 0, err
	}
	if ranks[role] < ranks[least] {
		return 0, refusal.New(refusal.RoleMissing, "This takes the role %s.", least)
	}
	return ranks[role], nil
}

// SetRole gives a user a role, and reports whether the role changed. It takes effect with the
// user's next call. Errors: Unauthenticated, BadInput, NotFound; Forbidden, for an actor who is not
// an admin, and for an API key, because the role would outlive the key.
//
// Cost: a look-up and a short transaction.
func (m *Moderation) SetRole(ctx context.Context, who Actor, id int64, role user.Role, note string) (changed bool, err error) {
	if _, err := m.demand(ctx, who, user.RoleADMIN); err != nil {
		return false, err
	}
	if who.Key != nil {
		return false, refusal.New(refusal.NotByKey, "No API key gives roles: an admin does, or the command line.")
	}
	if note, err = noteField.Clean(note); err != nil {
		return false, err
	}
	err = rows.InTx(ctx, m.cfg.DB, func(tx *ent.Tx) error {
		u, err := tx.User.Query().Where(user.ID(id), rows.ForUpdate).Only(ctx)
		// Only the command line gives a hidden user a higher role.
		if ent.IsNotFound(err) || err == nil && u.Hidden && !who.Console && ranks[role] > ranks[u.Role] {
			return refusal.ErrNoSuchUser
		}
		if err != nil {
			return fmt.Errorf("lock user: %w", err)
		}
		if changed = u.Role != role; !changed {
			return nil
		}
		if err := tx.User.UpdateOneID(id).SetRole(role).Exec(ctx); err != nil {
			return fmt.Errorf("set role: %w", err)
		}
		return record(ctx, tx, who, Action{
			auditentry.ActionSET_ROLE, auditentry.SubjectKindUser, id, note,
			schema.AuditDetails{RoleBefore: string(u.Role), RoleAfter: string(role)},
		})
	})
	return changed && err == nil, err
}

// Suspend hides a user and ends all the user's sessions, until Unsuspend or the end of the suspension; see
// account.Accounts. The user reads the reason and the end at a log-in, and never the note, which is for the
// audit log. The audit log has all three. It reports whether the user was not suspended before. An end that
// is not in the future is BadInput. Errors: Unauthenticated, BadInput; NotFound, also for a user who is being
// deleted; Forbidden, for an actor who is not a moderator, and for a user whose role is not below the actor's.
//
// Cost: a look-up, and the cost of account.Accounts.Suspend.
func (m *Moderation) Suspend(ctx context.Context, who Actor, id int64, note string, s account.Suspension) (changed bool, err error) {
	if err := s.Clean(); err != nil {
		return false, err
	}
	if s.Until != nil && !s.Until.After(m.cfg.Now()) {
		return false, refusal.New(refusal.NotInTheFuture, "A suspension ends in the future.").In("until")
	}
	return m.judge(ctx, who, id, auditentry.ActionSUSPEND_USER, note, s, func(ctx context.Context, id int64, allow func(*ent.Tx, *ent.User) error) (bool, error) {
		return m.cfg.Accounts.Suspend(ctx, id, s, allow)
	})
}

// Unsuspend ends a suspension. Results, errors and cost are as for Suspend.
func (m *Moderation) Unsuspend(ctx context.Context, who Actor, id int64, note string) (changed bool, err error) {
	return m.judge(ctx, who, id, auditentry.ActionUNSUSPEND_USER, note, account.Suspension{}, m.cfg.Accounts.Unsuspend)
}

// Suspension says who is suspended, and what the user is told.
type Suspension struct {
	User         int64
	Handle, Name string
	account.Suspension
}

// UserNodeID returns the user's id in the API.
func (s *Suspension) UserNodeID() string { return ent.NodeID("User", s.User) }

// AllSuspensions returns a page of the suspended users. The newest users come first. It returns Unauthenticated
// or BadInput, and Forbidden if the actor is not a moderator.
//
// Cost: a look-up, an index range, and a query for the users.
func (m *Moderation) AllSuspensions(ctx context.Context, who Actor, p paging.Page) (*paging.Connection[Suspension], error) {
	if _, err := m.demand(ctx, who, user.RoleMODERATOR); err != nil {
		return nil, err
	}
	w, err := paging.Open(p, paging.Suspensions, 0, m.cfg.MaxPage)
	if err != nil {
		return nil, err
	}
	r := w.Range()
	q := m.cfg.DB.HiddenUser.Query().Where(hiddenuser.StateEQ(hiddenuser.StateSUSPENDED)).Order(ent.Desc(hiddenuser.FieldID)).Limit(r.Limit)
	if w.After != nil {
		q.Where(hiddenuser.IDLT(r.Upper()))
	}
	hidden, err := q.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("list suspensions: %w", err)
	}
	more := len(hidden) > w.N
	hidden = hidden[:min(len(hidden), w.N)]
	list, err := m.describe(ctx, hidden)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(s *Suspension) bool { return s == nil }) // deleted meanwhile
	cursor := func(user int64) string { return paging.Cursor{ID: user}.Encode(paging.Suspensions, 0) }
	page := paging.Connect(w, list, func(s *Suspension) paging.Edge[Suspension] {
		return paging.Edge[Suspension]{Cursor: cursor(s.User), Node: s}
	})
	if page.HasNextPage = more; more && len(list) < w.N {
		page.End = cursor(hidden[w.N-1].ID)
	}
	return page, nil
}

// SuspensionOf returns the suspension of the user with the handle. It returns nil if nobody has the
// handle, and for a user who is not suspended. Only moderators may call it. Errors: Unauthenticated,
// Forbidden.
//
// Cost: two look-ups, and the cost of Suspensions.
func (m *Moderation) SuspensionOf(ctx context.Context, who Actor, handle string) (*Suspension, error) {
	if _, err := m.demand(ctx, who, user.RoleMODERATOR); err != nil {
		return nil, err
	}
	handle, err := account.Handle(handle)
	if err != nil {
		return nil, nil // nobody has it
	}
	ids, err := m.cfg.DB.User.Query().Where(user.Handle(handle)).IDs(ctx)
	if err != nil || len(ids) == 0 {
		return nil, errs.Wrap(err, "find user")
	}
	list, err := m.Suspensions(ctx, ids)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// Suspensions returns the suspensions of the users with the ids, in their order. An entry is nil if the user
// is not suspended. Only moderators read them.
//
// Cost: two queries.
func (m *Moderation) Suspensions(ctx context.Context, ids []int64) ([]*Suspension, error) {
	found, err := m.cfg.DB.HiddenUser.Query().Where(rows.Among(hiddenuser.FieldID, ids), hiddenuser.StateEQ(hiddenuser.StateSUSPENDED)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read suspensions: %w", err)
	}
	return m.describe(ctx, rows.InOrder(ids, found, func(h *ent.HiddenUser) int64 { return h.ID }))
}

// describe returns the suspensions with the names of the users. An entry is nil if the row is nil or the user
// is gone.
func (m *Moderation) describe(ctx context.Context, hidden []*ent.HiddenUser) ([]*Suspension, error) {
	ids := make([]int64, len(hidden))
	for i, h := range hidden {
		if h != nil {
			ids[i] = h.ID
		}
	}
	list, err := m.cfg.DB.User.Query().Where(rows.Among(user.FieldID, ids)).Select(user.FieldID, user.FieldHandle, user.FieldName).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read suspended users: %w", err)
	}
	suspensions := make([]*Suspension, len(ids))
	for i, u := range rows.InOrder(ids, list, func(u *ent.User) int64 { return u.ID }) {
		if u != nil && hidden[i] != nil {
			suspensions[i] = &Suspension{u.ID, u.Handle, u.Name, account.SuspensionOf(hidden[i])}
		}
	}
	return suspensions, nil
}

// judge checks that the actor may act on the user, and calls do with a function that records the
// action with the note and what the user is told.
func (m *Moderation) judge(ctx context.Context, who Actor, id int64, action auditentry.Action, note string, s account.Suspension,
	do func(context.Context, int64, func(*ent.Tx, *ent.User) error) (bool, error),
) (bool, error) {
	rank, err := m.demand(ctx, who, user.RoleMODERATOR)
	if err != nil {
		return false, err
	}
	if note, err = noteField.Clean(note); err != nil {
		return false, err
	}
	return do(ctx, id, func(tx *ent.Tx, u *ent.User) error {
		if ranks[u.Role] >= rank {
			return refusal.New(refusal.RoleNotBelow, "The role of the user is not below yours.")
		}
		return record(ctx, tx, who, Action{action, auditentry.SubjectKindUser, id, note, schema.AuditDetails{Reason: s.Reason, Until: s.Until}})
	})
}

// HidePost hides a post from everybody except its author, whatever its visibility, and reports
// whether it was not hidden before. Errors: Unauthenticated, BadInput, NotFound; Forbidden, for an
// actor who is not a moderator.
//
// Cost: a look-up, and the cost of feed.HidePost.
func (m *Moderation) HidePost(ctx context.Context, who Actor, id int64, note string) (changed bool, err error) {
	return m.hide(ctx, who, id, auditentry.ActionHIDE_POST, note)
}

// UnhidePost reverses HidePost. Results, errors and cost are as for HidePost. It is also
// Forbidden for the author, who would undo the decision of another moderator.
func (m *Moderation) UnhidePost(ctx context.Context, who Actor, id int64, note string) (changed bool, err error) {
	return m.hide(ctx, who, id, auditentry.ActionUNHIDE_POST, note)
}

func (m *Moderation) hide(ctx context.Context, who Actor, id int64, action auditentry.Action, note string) (bool, error) {
	if _, err := m.demand(ctx, who, user.RoleMODERATOR); err != nil {
		return false, err
	}
	note, err := noteField.Clean(note)
	if err != nil {
		return false, err
	}
	return m.cfg.Feed.HidePost(ctx, id, action == auditentry.ActionHIDE_POST, func(tx *ent.Tx, author int64) error {
		if action == auditentry.ActionUNHIDE_POST && author == who.ID {
			return refusal.New(refusal.OwnPost, "Another moderator must show your post again.")
		}
		return record(ctx, tx, who, Action{Kind: action, SubjectKind: auditentry.SubjectKindPost, Subject: id, Note: note})
	})
}
