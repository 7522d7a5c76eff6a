package graph

import (
	"context"

	"tideline/ent"
	entuser "tideline/ent/user"
	"tideline/feed/moderation"
	"tideline/feed/paging"
	"tideline/graph/model"
)

func (r user) Role(ctx context.Context, u *ent.User) (*entuser.Role, error) {
	if Viewer(ctx).ID != u.ID {
		return nil, nil
	}
	role, err := r.Moderation.Role(ctx, u.ID)
	return &role, err
}

func (r query) AuditLog(ctx context.Context, first *int, after *string) (*paging.Connection[ent.AuditEntry], error) {
	return r.Moderation.AuditLog(ctx, moderation.By(Viewer(ctx)), paging.Page{First: first, After: after})
}

func (r mutation) SetRole(ctx context.Context, in model.SetRoleInput) (*model.SetRolePayload, error) {
	id, err := idOf("userId", in.UserID, "User")
	if err == nil {
		_, err = r.Moderation.SetRole(ctx, moderation.By(Viewer(ctx)), id, in.Role, orZero(in.Note))
	}
	return &model.SetRolePayload{UserID: in.UserID, Role: in.Role}, err
}

func (r mutation) SuspendUser(ctx context.Context, in model.ModerateUserInput) (*model.ModerateUserPayload, error) {
	return judge(ctx, in, r.Moderation.Suspend)
}

func (r mutation) UnsuspendUser(ctx context.Context, in model.ModerateUserInput) (*model.ModerateUserPayload, error) {
	return judge(ctx, in, r.Moderation.Unsuspend)
}

func (r mutation) HidePost(ctx context.Context, in model.ModeratePostInput) (*model.ModeratePostPayload, error) {
	changed, err := moderate(ctx, "postId", in.PostID, "Post", in.Note, r.Moderation.HidePost)
	return &model.ModeratePostPayload{PostID: in.PostID, Changed: changed}, err
}

func (r mutation) UnhidePost(ctx context.Context, in model.ModeratePostInput) (*model.ModeratePostPayload, error) {
	changed, err := moderate(ctx, "postId", in.PostID, "Post", in.Note, r.Moderation.UnhidePost)
	return &model.ModeratePostPayload{PostID: in.PostID, Changed: changed}, err
}

// act is what a moderator does to a user or a post.
type act func(ctx context.Context, who moderation.Actor, id int64, note string) (changed bool, err error)

func judge(ctx context.Context, in model.ModerateUserInput, do act) (*model.ModerateUserPayload, error) {
	changed, err := moderate(ctx, "userId", in.UserID, "User", in.Note, do)
	return &model.ModerateUserPayload{UserID: in.UserID, Changed: changed}, err
}

// moderate has the viewer do something to what the argument names.
func moderate(ctx context.Context, argument, text, kind string, note *string, do act) (bool, error) {
	id, err := idOf(argument, text, kind)
	if err != nil {
		return false, err
	}
	return do(ctx, moderation.By(Viewer(ctx)), id, orZero(note))
}
