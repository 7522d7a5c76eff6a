package userstate

import "context"

// Look reads the states now.
func (u *Users) Look(ctx context.Context) { u.look(ctx) }
