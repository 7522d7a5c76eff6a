package bulk

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tideline/ent"
	"tideline/ent/auditentry"
	"tideline/ent/hiddenuser"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/account"
	"tideline/feed/password"
	"tideline/feed/refusal"
)

// User is a user from another server. Nil fields are unknown, and change nothing.
type User struct {
	ExternalID string
	// Handle is the requested handle of a new user. It is changed to one that is allowed and free,
	// as for a user who signs in with a token. The handle of an existing user does not change.
	Handle    *string
	Name, Bio *string
	AvatarURL *string    // on any host; shown only if the host is allowed
	Links     []string   // replaces all links
	Data      *string    // the app's own fields, a JSON object; replaces all of them
	CreatedAt *time.Time // only for a new user, to the microsecond; defaults to now
	// CreatedAtText is an alternative to CreatedAt, in the format of ParseTime. With a malformed
	// time only that row of a call is refused.
	CreatedAtText *string
	// These default as for a sign-up.
	DefaultVisibility *schema.Visibility
	ApprovesFollowers *bool
	HomeReplies       *schema.HomeReplies
	// PasswordHash must pass password.CheckHash. It is stored only if the user has no password
	// here.
	PasswordHash *string
	// Suspended hides a new user from the start, and suspends an existing user. False changes
	// nothing: a suspension here stays.
	Suspended bool
	// Suspension has the reason and the end of the suspension, if this row suspends the user.
	Suspension account.Suspension
}

// Users creates users of the issuer, or changes their profiles. Error: BadInput, for more than
// MaxRows.
//
// Cost: two statements a thousand rows. Changed users cost three more, and new users two more. Both
// also cost account.KeepNames for new names, and at most two statements for data. New suspended users
// cost one more. Suspending an existing user costs as much as account.Accounts.Suspend.
func (b *Bulk) Users(ctx context.Context, issuer string, list []User) ([]*Result, error) {
	results, err := take(ctx, b, list, func(ctx context.Context, tx *ent.Tx, list []User, results []*Result) error {
		return b.users(ctx, tx, issuer, list, results)
	})
	if err != nil {
		return nil, err
	}
	for i, r := range results {
		if !r.suspend {
			continue
		}
		changed, err := b.cfg.Accounts.Suspend(ctx, r.User, list[i].Suspension, func(tx *ent.Tx, _ *ent.User) error {
			return tx.AuditEntry.Create().SetActorID(0).SetAction(auditentry.ActionSUSPEND_USER).SetSubjectKind(auditentry.SubjectKindUser).
				SetSubjectID(r.User).SetDetails(schema.AuditDetails{Reason: list[i].Suspension.Reason, Until: list[i].Suspension.Until, Imported: true}).Exec(ctx)
		})
		switch {
		case refusal.CodeOf(err) == refusal.NotFound: // deletion began in the meantime
			*r = *refused(errLeaving)
		case err != nil:
			return nil, fmt.Errorf("suspend user: %w", err)
		case changed:
			r.Status = Updated
		}
	}
	return results, nil
}

var errLeaving error = refusal.New(refusal.BeingDeleted, "The account is about to be deleted.")

// profile is a row of the update of users.
type profile struct {
	ID                int64             `json:"a"`
	Name              string            `json:"b"`
	Bio               string            `json:"c"`
	DefaultVisibility schema.Visibility `json:"d"`
	ApprovesFollowers bool              `json:"e"`
	PasswordHash      string            `json:"f"`
	AvatarURL         string            `json:"g"`
	Links             string            `json:"h"`
	Data              string            `json:"i"`

	HomeReplies schema.HomeReplies `json:"j"`
}

func profileOf(u *knownUser) profile {
	return profile{
		ID: u.ID, Name: u.Name, Bio: u.Bio, DefaultVisibility: u.DefaultVisibility,
		ApprovesFollowers: u.ApprovesFollowers, PasswordHash: u.PasswordHash, AvatarURL: u.AvatarURL, Links: u.Links,
		Data: *u.Data, HomeReplies: u.HomeReplies,
	}
}

// changed returns the user's profile with the changes of the row.
func (u *User) changed(now *knownUser) profile {
	p := profile{
		ID: now.ID, Name: or(u.Name, now.Name), Bio: or(u.Bio, now.Bio), DefaultVisibility: or(u.DefaultVisibility, now.DefaultVisibility),
		ApprovesFollowers: or(u.ApprovesFollowers, now.ApprovesFollowers), PasswordHash: now.PasswordHash, AvatarURL: or(u.AvatarURL, now.AvatarURL), Links: now.Links,
		Data: or(u.Data, *now.Data), HomeReplies: or(u.HomeReplies, now.HomeReplies),
	}
	if u.Links != nil {
		p.Links = strings.Join(u.Links, "\n")
	}
	if now.PasswordHash == account.NoPassword {
		p.PasswordHash = or(u.PasswordHash, now.PasswordHash)
	}
	return p
}

// change updates the users of the rows in at. It reads them again under their locks, so that their
// own changes since then stay, except in fields that a row sets.
func (b *Bulk) change(ctx context.Context, tx *ent.Tx, issuer string, list []User, at []int, userIDs []int64) error {
	if err := lock(ctx, tx, userIDs); err != nil {
		return err
	}
	externalIDs := make([]string, len(at))
	for n, i := range at {
		externalIDs[n] = list[i].ExternalID
	}
	known, err := b.usersOf(ctx, tx, issuer, externalIDs)
	if err != nil {
		return err
	}
	var profiles []profile
	byID := map[int64]*ent.User{}
	for _, i := range at {
		if u := known[list[i].ExternalID]; u != nil {
			profiles = append(profiles, list[i].changed(u))
			byID[u.ID] = &u.User
		}
	}
	err = exec(ctx, tx, "UPDATE users SET name = r.b, bio = r.c, default_visibility = r.d, approves_followers = r.e, password_hash = r.f, avatar_url = r.g, links = r.h, home_replies = r.j FROM "+
		b.table("a bigint", "b text", "c text", "d text", "e boolean", "f text", "g text", "h text", "j text")+" WHERE users.id = r.a", profiles)
	if err != nil {
		return fmt.Errorf("change users: %w", err)
	}
	var renamed []*ent.User
	for _, p := range profiles {
		if u := byID[p.ID]; u.Name != p.Name {
			u.Name = p.Name
			renamed = append(renamed, u)
		}
	}
	if err := account.KeepNames(ctx, tx, renamed...); err != nil {
		return err
	}
	var kept []data
	for _, i := range at {
		if u, fields := known[list[i].ExternalID], list[i].Data; u != nil && fields != nil {
			kept = append(kept, data{u.ID, *fields})
		}
	}
	return b.keepData(ctx, tx, "user_data", "user_id", kept)
}

func (b *Bulk) users(ctx context.Context, tx *ent.Tx, issuer string, list []User, results []*Result) error {
	now := time.Now()
	var externalIDs []string
	seen := map[string]bool{}
	for i := range list {
		err := list[i].clean(now)
		if err == nil && seen[list[i].ExternalID] {
			err = refusal.New(refusal.RepeatedRow, "An earlier row has the same external id.").In("externalId")
		}
		if err != nil {
			results[i] = refused(err)
			continue
		}
		seen[list[i].ExternalID] = true
		externalIDs = append(externalIDs, list[i].ExternalID)
	}
	known, err := b.usersOf(ctx, tx, issuer, externalIDs)
	if err != nil {
		return err
	}
	var changed, fresh []int
	var changedIDs []int64
	for i, row := range list {
		if results[i] != nil {
			continue
		}
		u := known[row.ExternalID]
		if u == nil {
			fresh = append(fresh, i)
			continue
		}
		if u.state != "" && u.state != hiddenuser.StateSUSPENDED {
			results[i] = refused(errLeaving)
			continue
		}
		results[i] = &Result{Status: Unchanged, User: u.ID, suspend: row.Suspended && u.state == ""}
		if row.changed(u) != profileOf(u) {
			results[i].Status = Updated
			changed, changedIDs = append(changed, i), append(changedIDs, u.ID)
		}
	}
	if len(changed) > 0 {
		if err := b.change(ctx, tx, issuer, list, changed, changedIDs); err != nil {
			return err
		}
	}
	return b.newUsers(ctx, tx, issuer, list, fresh, results)
}

// clean checks the row, and normalises its texts.
func (u *User) clean(now time.Time) (err error) {
	if err := checkID(u.ExternalID); err != nil {
		return err
	}
	if u.Name != nil {
		name, err := account.NameField.CleanLine(*u.Name)
		if err != nil {
			return err
		}
		u.Name = &name
	}
	if u.Bio != nil {
		bio, err := account.BioField.Clean(*u.Bio)
		if err != nil {
			return err
		}
		u.Bio = &bio
	}
	if u.AvatarURL != nil {
		address, err := account.CleanAvatar(*u.AvatarURL)
		if err != nil {
			return err
		}
		u.AvatarURL = &address
	}
	if u.Links != nil {
		links, err := account.CleanLinks(u.Links)
		if err != nil {
			return err
		}
		u.Links = slices.DeleteFunc(strings.Split(links, "\n"), func(link string) bool { return link == "" })
	}
	if u.Data, err = cleanData(u.Data); err != nil {
		return err
	}
	if u.CreatedAt, err = createdAt(u.CreatedAt, u.CreatedAtText, now); err != nil {
		return err
	}
	if err := u.Suspension.Clean(); err != nil {
		return err
	}
	if u.PasswordHash != nil {
		return password.CheckHash(*u.PasswordHash)
	}
	return nil
}

// newUsers creates users for the rows in fresh. Error: a constraint error, if another transaction
// has just taken a handle or created one of the users.
func (b *Bulk) newUsers(ctx context.Context, tx *ent.Tx, issuer string, list []User, fresh []int, results []*Result) error {
	if len(fresh) == 0 {
		return nil
	}
	newIDs, handles := make([]int64, len(fresh)), make([]string, len(fresh))
	for n, i := range fresh { // ids ascend in the order of the rows
		var err error
		if newIDs[n], err = b.cfg.IDs.Next(); err != nil {
			return err
		}
		if handles[n], err = account.Handle(or(list[i].Handle, "")); err != nil {
			handles[n] = account.HandleFrom(or(list[i].Handle, ""), newIDs[n], 0)
		}
	}
	found, err := tx.User.Query().Where(user.HandleIn(handles...)).Select(user.FieldHandle).Strings(ctx)
	if err != nil {
		return fmt.Errorf("look for handles: %w", err)
	}
	taken := make(map[string]bool, len(found))
	for _, handle := range found {
		taken[handle] = true
	}
	makeUsers := make([]*ent.UserCreate, len(fresh))
	suspended := map[int64]account.Suspension{}
	for n, i := range fresh {
		row, handle := list[i], handles[n]
		for attempt := 1; taken[handle]; attempt++ {
			handle = account.HandleFrom(or(row.Handle, ""), newIDs[n], attempt)
		}
		taken[handle] = true
		makeUsers[n] = tx.User.Create().SetID(newIDs[n]).SetHandle(handle).SetName(or(row.Name, handle)).SetBio(or(row.Bio, "")).SetAvatarURL(or(row.AvatarURL, "")).SetLinks(strings.Join(row.Links, "\n")).
			SetPasswordHash(or(row.PasswordHash, account.NoPassword)).SetIssuer(issuer).SetExternalID([]byte(row.ExternalID)).
			SetNillableDefaultVisibility(row.DefaultVisibility).SetNillableApprovesFollowers(row.ApprovesFollowers).SetNillableHomeReplies(row.HomeReplies).SetHidden(row.Suspended)
		if row.Suspended {
			suspended[newIDs[n]] = row.Suspension
		}
		if row.CreatedAt != nil {
			makeUsers[n].SetCreatedAt(row.CreatedAt.UTC().Truncate(time.Microsecond)) // the precision of PostgreSQL
		}
		results[i] = &Result{Status: Created, User: newIDs[n]}
	}
	// Every transaction inserts in the same order, so that two transactions cannot deadlock.
	slices.SortFunc(makeUsers, func(a, b *ent.UserCreate) int {
		first, _ := a.Mutation().ExternalID()
		second, _ := b.Mutation().ExternalID()
		return bytes.Compare(first, second)
	})
	created, err := tx.User.CreateBulk(makeUsers...).Save(ctx)
	if err != nil {
		return fmt.Errorf("create users: %w", err)
	}
	if err := account.KeepNames(ctx, tx, created...); err != nil {
		return err
	}
	if err := account.SuspendNew(ctx, tx, suspended); err != nil {
		return err
	}
	var kept []data
	for n, i := range fresh {
		if fields := or(list[i].Data, ent.NoData); fields != ent.NoData {
			kept = append(kept, data{newIDs[n], fields})
		}
	}
	return b.keepData(ctx, tx, "user_data", "user_id", kept)
}

func or[T any](value *T, otherwise T) T {
	if value != nil {
		return *value
	}
	return otherwise
}
