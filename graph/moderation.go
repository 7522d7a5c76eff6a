package graph

import (
	"context"
	"strconv"
	"time"

	"tideline/ent"
	"tideline/ent/auditentry"
	entreport "tideline/ent/report"
	entuser "tideline/ent/user"
	"tideline/feed/account"
	"tideline/feed/moderation"
	"tideline/feed/paging"
	"tideline/graph/model"
)

func (r user) Role(ctx context.Context, u *ent.User) (*entuser.Role, error) {
	g := groupsOf(ctx)
	return field(g, g.users, u, "role", func(users []*ent.User) ([]*entuser.Role, error) {
		return r.Moderation.Roles(ctx, moderation.By(Viewer(ctx)), idsOf(users, func(u *ent.User) int64 { return u.ID }))
	})
}

func (r query) AuditLog(ctx context.Context, first *int, after *string) (*paging.Connection[ent.AuditEntry], error) {
	c, err := r.Moderation.AuditLog(ctx, moderation.By(Viewer(ctx)), paging.Page{First: first, After: after})
	if c != nil {
		g := groupsOf(ctx)
		together(g, g.entries, c.Nodes())
	}
	return c, err
}

func (r auditEntry) ActorHandle(ctx context.Context, e *ent.AuditEntry) (*string, error) {
	h, err := r.handles(ctx, e)
	return orNone(h.Actor), err
}

func (r auditEntry) SubjectHandle(ctx context.Context, e *ent.AuditEntry) (*string, error) {
	h, err := r.handles(ctx, e)
	return orNone(h.Subject), err
}

func (auditEntry) RoleBefore(_ context.Context, e *ent.AuditEntry) (*entuser.Role, error) {
	return orNone(entuser.Role(e.Details.RoleBefore)), nil
}

func (auditEntry) RoleAfter(_ context.Context, e *ent.AuditEntry) (*entuser.Role, error) {
	return orNone(entuser.Role(e.Details.RoleAfter)), nil
}

func (auditEntry) Decision(_ context.Context, e *ent.AuditEntry) (*model.ReportDecision, error) {
	return orNone(model.ReportDecision(e.Details.Decision)), nil
}

func (auditEntry) Reason(_ context.Context, e *ent.AuditEntry) (*string, error) {
	return orNone(e.Details.Reason), nil
}

func (auditEntry) Until(_ context.Context, e *ent.AuditEntry) (*time.Time, error) {
	return e.Details.Until, nil
}

func (auditEntry) Imported(_ context.Context, e *ent.AuditEntry) (bool, error) {
	return e.Details.Imported, nil
}

func (auditEntry) JobCount(_ context.Context, e *ent.AuditEntry) (*int, error) {
	return orNone(e.Details.JobCount), nil
}

func (auditEntry) JobIds(_ context.Context, e *ent.AuditEntry) ([]string, error) {
	var ids []string
	for _, id := range e.Details.Jobs {
		ids = append(ids, strconv.FormatInt(id, 10))
	}
	return ids, nil
}

func (auditEntry) ProcessID(_ context.Context, e *ent.AuditEntry) (*string, error) {
	if e.SubjectKind != auditentry.SubjectKindProcess {
		return nil, nil
	}
	return new(strconv.FormatInt(e.SubjectID, 10)), nil
}

func (r auditEntry) handles(ctx context.Context, e *ent.AuditEntry) (moderation.Handles, error) {
	g := groupsOf(ctx)
	return field(g, g.entries, e, "handles", func(all []*ent.AuditEntry) ([]moderation.Handles, error) {
		return r.Moderation.Handles(ctx, all)
	})
}

// orNone returns nil for an empty text, and for 0.
func orNone[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

func (r moderationMutation) SetRole(ctx context.Context, in model.SetRoleInput) (*model.SetRolePayload, error) {
	id, err := idOf("userId", in.UserID, "User")
	if err == nil {
		_, err = r.Moderation.SetRole(ctx, moderation.By(Viewer(ctx)), id, in.Role, orZero(in.Note))
	}
	return &model.SetRolePayload{UserID: in.UserID, Role: in.Role}, err
}

func (r moderationMutation) SuspendUser(ctx context.Context, in model.ModerateUserInput) (*model.ModerateUserPayload, error) {
	return judge(ctx, in, func(ctx context.Context, who moderation.Actor, id int64, note string) (bool, error) {
		return r.Moderation.Suspend(ctx, who, id, note, account.Suspension{Reason: orZero(in.Reason), Until: in.Until})
	})
}

func (r moderationMutation) UnsuspendUser(ctx context.Context, in model.ModerateUserInput) (*model.ModerateUserPayload, error) {
	return judge(ctx, in, r.Moderation.Unsuspend)
}

func (r moderationMutation) HidePost(ctx context.Context, in model.ModeratePostInput) (*model.ModeratePostPayload, error) {
	changed, err := moderate(ctx, "postId", in.PostID, "Post", in.Note, r.Moderation.HidePost)
	return &model.ModeratePostPayload{PostID: in.PostID, Changed: changed}, err
}

func (r moderationMutation) UnhidePost(ctx context.Context, in model.ModeratePostInput) (*model.ModeratePostPayload, error) {
	changed, err := moderate(ctx, "postId", in.PostID, "Post", in.Note, r.Moderation.UnhidePost)
	return &model.ModeratePostPayload{PostID: in.PostID, Changed: changed}, err
}

// act is an action of a moderator on a user or a post.
type act func(ctx context.Context, who moderation.Actor, id int64, note string) (changed bool, err error)

func judge(ctx context.Context, in model.ModerateUserInput, do act) (*model.ModerateUserPayload, error) {
	changed, err := moderate(ctx, "userId", in.UserID, "User", in.Note, do)
	return &model.ModerateUserPayload{UserID: in.UserID, Changed: changed}, err
}

// moderate runs an action of the viewer on the object that the argument identifies.
func moderate(ctx context.Context, argument, text, kind string, note *string, do act) (bool, error) {
	id, err := idOf(argument, text, kind)
	if err != nil {
		return false, err
	}
	return do(ctx, moderation.By(Viewer(ctx)), id, orZero(note))
}

func (r query) Reports(ctx context.Context, status *entreport.Status, first *int, after *string) (*paging.Connection[ent.Report], error) {
	c, err := r.Moderation.Reports(ctx, moderation.By(Viewer(ctx)), orZero(status), paging.Page{First: first, After: after})
	if c != nil {
		g := groupsOf(ctx)
		together(g, g.reports, c.Nodes())
	}
	return c, err
}

func (r query) Report(ctx context.Context, id string) (*ent.Report, error) {
	row, err := idOf("id", id, "Report")
	if err != nil {
		row = 0 // such an object does not exist
	}
	return orNull(r.Moderation.Report(ctx, moderation.By(Viewer(ctx)), row))
}

func (r query) Suspension(ctx context.Context, handle string) (*moderation.Suspension, error) {
	return r.Moderation.SuspensionOf(ctx, moderation.By(Viewer(ctx)), handle)
}

func (r query) Suspensions(ctx context.Context, first *int, after *string) (*paging.Connection[moderation.Suspension], error) {
	return r.Moderation.AllSuspensions(ctx, moderation.By(Viewer(ctx)), paging.Page{First: first, After: after})
}

func (r report) Reporter(ctx context.Context, one *ent.Report) (*ent.User, error) {
	return r.userOf(ctx, one, "reporter", func(r *ent.Report) int64 { return r.ReporterID })
}

func (r report) Reported(ctx context.Context, one *ent.Report) (*ent.User, error) {
	return r.userOf(ctx, one, "reported", func(r *ent.Report) int64 { return r.ReportedID })
}

func (r report) ClaimedBy(ctx context.Context, one *ent.Report) (*ent.User, error) {
	return r.userOf(ctx, one, "claimedBy", (*ent.Report).Claimant)
}

func (r report) DecidedBy(ctx context.Context, one *ent.Report) (*ent.User, error) {
	return r.userOf(ctx, one, "decidedBy", (*ent.Report).Decider)
}

func (r report) Suspension(ctx context.Context, one *ent.Report) (*moderation.Suspension, error) {
	g := groupsOf(ctx)
	return field(g, g.reports, one, "suspension", func(all []*ent.Report) ([]*moderation.Suspension, error) {
		return r.Moderation.Suspensions(ctx, idsOf(all, func(r *ent.Report) int64 { return r.ReportedID }))
	})
}

func (r report) Post(ctx context.Context, one *ent.Report) (*ent.Post, error) {
	g := groupsOf(ctx)
	return field(g, g.reports, one, "post", func(all []*ent.Report) ([]*ent.Post, error) {
		posts, err := r.Feed.ReportedPosts(ctx, idsOf(all, func(r *ent.Report) int64 { return r.PostID }))
		postsTogether(ctx, posts)
		return posts, err
	})
}

// userOf returns a user whom a report names, or nil if the user is hidden from everybody.
func (r report) userOf(ctx context.Context, one *ent.Report, name string, id func(*ent.Report) int64) (*ent.User, error) {
	g := groupsOf(ctx)
	return field(g, g.reports, one, name, func(all []*ent.Report) ([]*ent.User, error) {
		users, err := r.Directory.Users(ctx, idsOf(all, id))
		usersTogether(ctx, users)
		return users, err
	})
}

func (r report) Versions(ctx context.Context, one *ent.Report, first *int, after *string) (*paging.Connection[ent.PostVersion], error) {
	return r.Moderation.ReportedVersions(ctx, one, paging.Page{First: first, After: after})
}

func (r report) Ancestors(ctx context.Context, one *ent.Report) ([]*ent.Post, error) {
	list, err := r.Moderation.ReportedAncestors(ctx, one)
	postsTogether(ctx, list)
	return list, err
}

func (r report) Replies(ctx context.Context, one *ent.Report) ([]*ent.Post, error) {
	list, err := r.Moderation.ReportedReplies(ctx, one)
	postsTogether(ctx, list)
	return list, err
}

func (r reportedPost) Author(ctx context.Context, p *ent.Post) (*ent.User, error) {
	return post(r).Author(ctx, p)
}

func (r reportedPost) CreatedAt(ctx context.Context, p *ent.Post) (*time.Time, error) {
	return post(r).CreatedAt(ctx, p)
}

func (r moderationMutation) ReportPost(ctx context.Context, in model.ReportPostInput) (*model.ReportPayload, error) {
	id, err := idOf("postId", in.PostID, "Post")
	if err != nil {
		return nil, err
	}
	made, err := r.Moderation.ReportPost(ctx, Viewer(ctx), id, moderation.Complaint{Reason: in.Reason, Comment: orZero(in.Comment)})
	return &model.ReportPayload{Reported: made}, err
}

func (r moderationMutation) ReportUser(ctx context.Context, in model.ReportUserInput) (*model.ReportPayload, error) {
	id, err := idOf("userId", in.UserID, "User")
	if err != nil {
		return nil, err
	}
	made, err := r.Moderation.ReportUser(ctx, Viewer(ctx), id, moderation.Complaint{Reason: in.Reason, Comment: orZero(in.Comment)})
	return &model.ReportPayload{Reported: made}, err
}

func (r moderationMutation) ClaimReport(ctx context.Context, in model.ClaimReportInput) (*model.ClaimReportPayload, error) {
	id, err := idOf("reportId", in.ReportID, "Report")
	if err != nil {
		return nil, err
	}
	claimed, err := r.Moderation.Claim(ctx, moderation.By(Viewer(ctx)), id)
	return &model.ClaimReportPayload{Report: claimed}, err
}

func (r moderationMutation) DecideReport(ctx context.Context, in model.DecideReportInput) (*model.DecideReportPayload, error) {
	id, err := idOf("reportId", in.ReportID, "Report")
	if err != nil {
		return nil, err
	}
	decided, n, err := r.Moderation.Decide(ctx, moderation.By(Viewer(ctx)), id, in.Decision == model.ReportDecisionUpheld, orZero(in.Note))
	return &model.DecideReportPayload{Report: decided, Decided: n}, err
}
