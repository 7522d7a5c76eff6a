package graph

import (
	"context"

	"tideline/ent"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/login"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/graph/model"
)

func (r mutation) SignUp(ctx context.Context, in model.SignUpInput) (*login.Auth, error) {
	return r.Login.SignUp(ctx, in.Handle, in.Password, orZero(in.Name))
}

func (r mutation) LogIn(ctx context.Context, in model.LogInInput) (*login.Auth, error) {
	return r.Login.LogIn(ctx, in.Handle, in.Password)
}

func (r mutation) LogOut(ctx context.Context) (bool, error) {
	return true, r.Sessions.LogOut(ctx, Viewer(ctx))
}

func (r mutation) LogOutEverywhere(ctx context.Context) (*model.LogOutEverywherePayload, error) {
	n, err := r.Sessions.LogOutEverywhere(ctx, Viewer(ctx))
	return &model.LogOutEverywherePayload{EndedSessions: n}, err
}

func (r mutation) EndSession(ctx context.Context, in model.EndSessionInput) (*model.EndSessionPayload, error) {
	return &model.EndSessionPayload{EndedSessionID: in.SessionID}, r.Sessions.End(ctx, Viewer(ctx), in.SessionID)
}

func (r mutation) ChangeHandle(ctx context.Context, in model.ChangeHandleInput) (*model.ChangeHandlePayload, error) {
	u, err := r.Accounts.ChangeHandle(ctx, Viewer(ctx), in.Handle)
	return &model.ChangeHandlePayload{User: u}, err
}

func (r mutation) ChangePassword(ctx context.Context, in model.ChangePasswordInput) (*model.ChangePasswordPayload, error) {
	n, err := r.Login.ChangePassword(ctx, Viewer(ctx), in.CurrentPassword, in.NewPassword)
	return &model.ChangePasswordPayload{EndedSessions: n}, err
}

func (r mutation) DeleteAccount(ctx context.Context, in model.DeleteAccountInput) (*model.DeleteAccountPayload, error) {
	until, err := r.Login.DeleteAccount(ctx, Viewer(ctx), orZero(in.Password))
	return &model.DeleteAccountPayload{RestorableUntil: until}, err
}

func (r mutation) ExportAccount(ctx context.Context, in model.ExportAccountInput) (*model.ExportAccountPayload, error) {
	path, until, err := r.Login.OfferExport(ctx, Viewer(ctx), orZero(in.Password))
	return &model.ExportAccountPayload{Path: path, ExpiresAt: until}, err
}

func (r mutation) UpdateProfile(ctx context.Context, in account.Profile) (*model.UpdateProfilePayload, error) {
	u, err := r.Accounts.UpdateProfile(ctx, Viewer(ctx), in)
	return &model.UpdateProfilePayload{User: u}, err
}

func (r mutation) CreatePost(ctx context.Context, in model.CreatePostInput) (*model.CreatePostPayload, error) {
	d := feed.Draft{
		Text: in.Text, Visibility: in.Visibility, Data: in.Data, IdempotencyKey: orZero(in.IdempotencyKey),
		ReplyAudience: orZero(in.ReplyAudience), QuoteAudience: orZero(in.QuoteAudience),
	}
	var err error
	if in.ReplyTo != nil {
		if d.ReplyTo, err = idOf("replyTo", *in.ReplyTo, "Post"); err != nil {
			return nil, err
		}
	}
	if in.QuoteOf != nil {
		if d.QuoteOf, err = idOf("quoteOf", *in.QuoteOf, "Post"); err != nil {
			return nil, err
		}
	}
	p, err := r.Feed.CreatePost(ctx, Viewer(ctx), d)
	return &model.CreatePostPayload{Post: p}, err
}

func (r mutation) UpdatePost(ctx context.Context, in model.UpdatePostInput) (*model.UpdatePostPayload, error) {
	id, err := idOf("postId", in.PostID, "Post")
	if err != nil {
		return nil, err
	}
	p, err := r.Feed.UpdatePost(ctx, Viewer(ctx), id, feed.Edit{Text: in.Text, Data: in.Data, IfUnchangedSince: in.IfUnchangedSince})
	return &model.UpdatePostPayload{Post: p}, err
}

func (r createPostPayload) Edge(ctx context.Context, in *model.CreatePostPayload) (*paging.Edge[ent.Post], error) {
	e, err := r.Home.Entry(ctx, Viewer(ctx), in.Post)
	return &e, err
}

func (r mutation) SetPostVisibility(ctx context.Context, in model.SetPostVisibilityInput) (*model.SetPostVisibilityPayload, error) {
	id, err := idOf("postId", in.PostID, "Post")
	if err != nil {
		return nil, err
	}
	p, err := r.Feed.SetVisibility(ctx, Viewer(ctx), id, in.Visibility)
	return &model.SetPostVisibilityPayload{Post: p}, err
}

func (r mutation) DeletePost(ctx context.Context, in model.DeletePostInput) (*model.DeletePostPayload, error) {
	id, err := idOf("postId", in.PostID, "Post")
	if err != nil {
		return nil, err
	}
	return &model.DeletePostPayload{DeletedPostID: in.PostID}, r.Feed.DeletePost(ctx, Viewer(ctx), id)
}

func (r mutation) LikePost(ctx context.Context, in model.LikePostInput) (*model.LikePostPayload, error) {
	return like(ctx, in, r.Feed.LikePost)
}

func (r mutation) UnlikePost(ctx context.Context, in model.LikePostInput) (*model.LikePostPayload, error) {
	return like(ctx, in, r.Feed.UnlikePost)
}

func like(
	ctx context.Context, in model.LikePostInput, change func(context.Context, session.Viewer, int64) (*ent.Post, error),
) (*model.LikePostPayload, error) {
	id, err := idOf("postId", in.PostID, "Post")
	if err != nil {
		return nil, err
	}
	p, err := change(ctx, Viewer(ctx), id)
	return &model.LikePostPayload{Post: p}, err
}

func (r mutation) Follow(ctx context.Context, in model.UserInput) (*model.RelationshipPayload, error) {
	return relate(ctx, in, r.Feed.Follow)
}

func (r mutation) Unfollow(ctx context.Context, in model.UserInput) (*model.RelationshipPayload, error) {
	return relate(ctx, in, r.Feed.Unfollow)
}

func (r mutation) AcceptFollower(ctx context.Context, in model.UserInput) (*model.RelationshipPayload, error) {
	return relate(ctx, in, r.Feed.AcceptFollower)
}

func (r mutation) RejectFollower(ctx context.Context, in model.UserInput) (*model.RelationshipPayload, error) {
	return relate(ctx, in, r.Feed.RejectFollower)
}

func (r mutation) RemoveFollower(ctx context.Context, in model.UserInput) (*model.RelationshipPayload, error) {
	return relate(ctx, in, r.Feed.RemoveFollower)
}

func (r mutation) Block(ctx context.Context, in model.UserInput) (*model.RelationshipPayload, error) {
	return relate(ctx, in, r.Feed.Block)
}

func (r mutation) Unblock(ctx context.Context, in model.UserInput) (*model.RelationshipPayload, error) {
	return relate(ctx, in, r.Feed.Unblock)
}

func (r mutation) Mute(ctx context.Context, in model.UserInput) (*model.RelationshipPayload, error) {
	return relate(ctx, in, r.Feed.Mute)
}

func (r mutation) Unmute(ctx context.Context, in model.UserInput) (*model.RelationshipPayload, error) {
	return relate(ctx, in, r.Feed.Unmute)
}

func (r mutation) MuteWord(ctx context.Context, in model.MuteWordInput) (*model.MuteWordPayload, error) {
	word, u, err := r.Feed.MuteWord(ctx, Viewer(ctx), in.Word)
	return &model.MuteWordPayload{Word: word, User: u}, err
}

func (r mutation) UnmuteWord(ctx context.Context, in model.MuteWordInput) (*model.MuteWordPayload, error) {
	word, u, err := r.Feed.UnmuteWord(ctx, Viewer(ctx), in.Word)
	return &model.MuteWordPayload{Word: word, User: u}, err
}

// relate changes the viewer's relation to a user.
func relate(
	ctx context.Context, in model.UserInput, change func(context.Context, session.Viewer, int64) (*ent.User, error),
) (*model.RelationshipPayload, error) {
	id, err := idOf("userId", in.UserID, "User")
	if err != nil {
		return nil, err
	}
	u, err := change(ctx, Viewer(ctx), id)
	return &model.RelationshipPayload{User: u}, err
}

func (r relationshipPayload) Relationship(ctx context.Context, in *model.RelationshipPayload) (*model.Relationship, error) {
	return r.relationship(ctx, in.User)
}

func (r mutation) MarkTimelineRead(ctx context.Context, in model.MarkTimelineReadInput) (*model.MarkTimelineReadPayload, error) {
	n, err := r.Home.Unread.MarkRead(ctx, Viewer(ctx), in.UpTo)
	return &model.MarkTimelineReadPayload{UnreadCount: n}, err
}

func (r readPayload) Viewer(ctx context.Context, _ *model.MarkTimelineReadPayload) (*ent.User, error) {
	return r.viewer(ctx)
}
