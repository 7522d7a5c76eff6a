package audit

import (
	"context"
	"fmt"
	"time"

	"tideline/ent"
	"tideline/feed/ids"
	"tideline/feed/refusal"
)

// Journey is what became of a post, without the post.
type Journey struct {
	Post, Author int64
	Created      time.Time
	Visibility   string
	// Receipt is that of the fan-out; nil before it has begun.
	Receipt *ent.Delivery
}

// Journey tells what became of a post after it was written. Error: NotFound, also for one
// that was deleted.
//
// Cost: two look-ups by primary key.
func (a *Audit) Journey(ctx context.Context, post int64) (*Journey, error) {
	p, err := a.posts.Stored(ctx, post)
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
