package audit

import (
	"context"
	"fmt"
	"time"

	"tideline/ent"
	"tideline/feed/ids"
	"tideline/feed/refusal"
)

// Journey describes what happened to a post, without its content.
type Journey struct {
	Post, Author int64
	Created      time.Time
	Visibility   string
	// Receipt is the receipt of the post's fan-out. It is nil before the fan-out has begun.
	Receipt *ent.Delivery
}

// Journey returns what happened to a post after it was written. Error: NotFound, also for a deleted
// post.
//
// Cost: two look-ups by primary key.
func (a *Audit) Journey(ctx context.Context, post int64) (*Journey, error) {
	p, err := a.posts.Unchecked.Post(ctx, post)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, refusal.ErrNoSuchPost
	}
	receipt, err := a.db.Delivery.Get(ctx, post)
	if err != nil && !ent.IsNotFound(err) {
		return nil, fmt.Errorf("read receipt: %w", err)
	}
	return &Journey{Post: post, Author: p.AuthorID, Created: ids.TimeOf(post), Visibility: string(p.Visibility), Receipt: receipt}, nil
}
