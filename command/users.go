package command

import (
	"context"
	"fmt"

	"tideline/feed/account"
	"tideline/server"
)

// Users acts on people's accounts.
type Users struct {
	SignOut usersSignOut `cmd:"" help:"End all sessions of a user at once, and refuse the tokens that an issuer gave the user until now."`
}

type usersSignOut struct {
	Handle string `arg:"" help:"The user's handle."`
}

func (s usersSignOut) Run(ctx context.Context, c server.Config, console server.Console) error {
	return c.WithSessions(ctx, console, func(sessions *account.Sessions, people *account.Directory) error {
		u, err := people.User(ctx, s.Handle)
		if err != nil {
			return err
		}
		n, err := sessions.SignOut(ctx, u.ID)
		if err != nil {
			return err
		}
		fmt.Fprintf(console.Out, "@%s is signed out: %d sessions ended.\n", u.Handle, n)
		return nil
	})
}
