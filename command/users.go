package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tideline/ent"
	"tideline/ent/user"
	"tideline/feed/account"
	"tideline/feed/moderation"
	"tideline/server"
	"tideline/server/backend"
)

// Users manages the accounts of users.
type Users struct {
	SignOut   usersSignOut   `cmd:"" help:"End all sessions of a user at once, and refuse the tokens that an issuer gave the user until now."`
	Delete    usersDelete    `cmd:"" help:"Hide a user from everybody at once, and have everything of the user deleted."`
	Restore   usersRestore   `cmd:"" help:"Call a deletion off, while its grace period lasts."`
	Role      usersRole      `cmd:"" help:"Give a user a role: user, moderator or admin."`
	Suspend   usersSuspend   `cmd:"" help:"Hide a user from everybody at once, and refuse log-ins."`
	Unsuspend usersUnsuspend `cmd:"" help:"End a suspension: everything is shown again."`
	Export    usersExport    `cmd:"" help:"Write all that is kept of a user, as lines of JSON."`
}

type usersSignOut struct {
	User string `arg:"" help:"Handle, id or number of the user."`
}

func (s usersSignOut) Run(ctx context.Context, c server.Config, console server.Console) error {
	return with(ctx, c, console, server.SQLAndRedis, func(b *backend.Backend) error {
		who, err := b.Directory.Named(ctx, s.User)
		if err != nil {
			return err
		}
		n, err := b.Sessions.SignOut(ctx, who.ID)
		if err != nil {
			return err
		}
		fmt.Fprintf(console.Out, "@%s is signed out: %s ended.\n", who.Handle, count(n, "session", "sessions"))
		return nil
	})
}

// withUser does what with does, for a command about the user with a handle, id or number.
func withUser(ctx context.Context, c server.Config, console server.Console, name string, run func(*backend.Backend, *ent.User) error) error {
	return with(ctx, c, console, server.SQLAndRedis, func(b *backend.Backend) error {
		who, err := b.Accounts.Named(ctx, name)
		if err != nil {
			return err
		}
		return run(b, who)
	})
}

type usersDelete struct {
	User  string        `arg:"" help:"Handle, id or number of the user."`
	Grace time.Duration `env:"-" default:"0s" help:"Keep the account for this long, in which its user may restore it by a log-in."`
}

func (d usersDelete) Run(ctx context.Context, c server.Config, console server.Console) error {
	return withUser(ctx, c, console, d.User, func(b *backend.Backend, who *ent.User) error {
		until, _, err := b.Accounts.Delete(ctx, who.ID, d.Grace)
		if err != nil {
			return err
		}
		if until != nil {
			fmt.Fprintf(console.Out, "@%s is hidden, and will be deleted after %s.\n", who.Handle, ifEver(until))
			return nil
		}
		fmt.Fprintf(console.Out, "@%s is hidden, and the workers delete what is left.\n", who.Handle)
		return nil
	})
}

type usersRestore struct {
	User string `arg:"" help:"Handle, id or number of the user."`
}

func (r usersRestore) Run(ctx context.Context, c server.Config, console server.Console) error {
	return withUser(ctx, c, console, r.User, func(b *backend.Backend, who *ent.User) error {
		restored, err := b.Accounts.Restore(ctx, who.ID)
		if err != nil {
			return err
		}
		if !restored {
			fmt.Fprintf(console.Out, "@%s was not about to be deleted.\n", who.Handle)
			return nil
		}
		fmt.Fprintf(console.Out, "@%s is there again.\n", who.Handle)
		return nil
	})
}

type usersRole struct {
	User string `arg:"" help:"Handle, id or number of the user."`
	Role string `arg:"" enum:"user,moderator,admin" help:"user, moderator or admin."`
	Note string `env:"-" help:"For the audit log."`
}

func (r usersRole) Run(ctx context.Context, c server.Config, console server.Console) error {
	return withUser(ctx, c, console, r.User, func(b *backend.Backend, who *ent.User) error {
		if _, err := b.Moderation.SetRole(ctx, moderation.Console, who.ID, user.Role(strings.ToUpper(r.Role)), r.Note); err != nil {
			return err
		}
		fmt.Fprintf(console.Out, "@%s has the role %s.\n", who.Handle, r.Role)
		return nil
	})
}

type usersSuspend struct {
	User   string        `arg:"" help:"Handle, id or number of the user."`
	Reason string        `env:"-" help:"Why, in words for the user, who reads them at a log-in."`
	For    time.Duration `env:"-" placeholder:"168h" help:"End the suspension by itself after this time. By default only unsuspend ends it."`
	Note   string        `env:"-" help:"For the audit log."`
}

func (s usersSuspend) Run(ctx context.Context, c server.Config, console server.Console) error {
	return withUser(ctx, c, console, s.User, func(b *backend.Backend, who *ent.User) error {
		told, end := account.Suspension{Reason: s.Reason}, ""
		if s.For != 0 {
			until := time.Now().Add(s.For)
			told.Until, end = &until, " until "+until.UTC().Format(time.RFC3339)
		}
		changed, err := b.Moderation.Suspend(ctx, moderation.Console, who.ID, s.Note, told)
		if err != nil {
			return err
		}
		if !changed {
			fmt.Fprintf(console.Out, "@%s was suspended already; unsuspend first, to change that.\n", who.Handle)
			return nil
		}
		fmt.Fprintf(console.Out, "@%s is suspended%s.\n", who.Handle, end)
		return nil
	})
}

type usersUnsuspend struct {
	User string `arg:"" help:"Handle, id or number of the user."`
	Note string `env:"-" help:"For the audit log."`
}

func (u usersUnsuspend) Run(ctx context.Context, c server.Config, console server.Console) error {
	return withUser(ctx, c, console, u.User, func(b *backend.Backend, who *ent.User) error {
		changed, err := b.Moderation.Unsuspend(ctx, moderation.Console, who.ID, u.Note)
		if err != nil {
			return err
		}
		if !changed {
			fmt.Fprintf(console.Out, "@%s was not suspended.\n", who.Handle)
			return nil
		}
		fmt.Fprintf(console.Out, "@%s is not suspended any more.\n", who.Handle)
		return nil
	})
}

type usersExport struct {
	User string `arg:"" help:"Handle, id or number of the user."`
}

func (e usersExport) Run(ctx context.Context, c server.Config, console server.Console) error {
	return withUser(ctx, c, console, e.User, func(b *backend.Backend, who *ent.User) error {
		out := bufio.NewWriter(console.Out)
		return errors.Join(b.Accounts.Export(ctx, who.ID, out), out.Flush())
	})
}
