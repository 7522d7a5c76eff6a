package admin

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tideline/ent/auditentry"
	"tideline/ent/process"
	"tideline/feed/ids"
	"tideline/feed/job"
	"tideline/feed/moderation"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/internal/fleet"
	"tideline/queue"
	"tideline/timeline"
)

// moment is a post's id with the time it encodes.
type moment struct {
	Post int64     `json:"post"`
	At   time.Time `json:"at"`
}

func momentOf(post int64) *moment {
	if post == 0 {
		return nil
	}
	return &moment{post, ids.TimeOf(post)}
}

// post reports on one post: its delivery receipt and its outstanding jobs. With a viewer it also reports why
// the post is or is not in the viewer's timeline, and its scores in the rankings.
func (p *Page) post(r *http.Request, _ session.Viewer) (any, error) {
	ctx, of := r.Context(), strings.TrimSpace(r.FormValue("id"))
	viewer := strings.TrimSpace(r.FormValue("viewer"))
	if len(of) > maxName || len(viewer) > maxName {
		return nil, bad("The id, or the viewer, is too long.")
	}
	id, err := strconv.ParseInt(of, 10, 64)
	if err != nil {
		if id, err = p.cfg.PostID(of); err != nil {
			return nil, bad("This is not the id of a post: give the one of the API, or the number in the log.")
		}
	}
	answer := map[string]any{"post": id}
	if viewer != "" { // works for a deleted post too
		u, err := p.cfg.Directory.Named(ctx, viewer)
		if err != nil {
			return nil, err
		}
		why, err := p.cfg.Audit.Explain(ctx, u.ID, id)
		if err != nil {
			return nil, err
		}
		scores, err := p.cfg.Audit.Scores(ctx, u.ID, id, "")
		if err != nil {
			return nil, err
		}
		answer["viewer"], answer["why"], answer["scores"] = u.Handle, why, scores
	}
	jobs, err := p.cfg.Queue.List(ctx, queue.ListOptions{Post: id, Limit: maxDead})
	if err != nil {
		return nil, err
	}
	answer["jobs"] = listed(jobs)
	journey, err := p.cfg.Audit.Journey(ctx, id)
	if refusal.CodeOf(err) == refusal.NotFound && (viewer != "" || len(jobs) > 0) {
		return answer, nil // all that is known about a deleted post
	}
	if err != nil {
		return nil, err
	}
	authors, err := p.cfg.Directory.Users(ctx, []int64{journey.Author})
	if err != nil {
		return nil, err
	}
	if authors[0] != nil {
		answer["author"] = authors[0].Handle
	}
	answer["createdAt"], answer["visibility"] = journey.Created, journey.Visibility
	if d := journey.Receipt; d != nil {
		answer["receipt"] = map[string]any{
			"pushed": d.Pushed, "pulled": d.Pulled, "skipped": d.Skipped, "done": d.Done,
			"firstLag": seconds(time.Duration(d.FirstLag) * time.Millisecond), "medianLag": seconds(time.Duration(d.MedianLag) * time.Millisecond),
			"lastLag": seconds(time.Duration(d.LastLag) * time.Millisecond),
		}
	}
	return answer, nil
}

// verifyGrace is the age from which a post that is absent from an inbox counts as missing.
const verifyGrace = 30 * time.Second

// timeline reports the state of a user's home timeline. With verify it also counts the differences from SQL.
func (p *Page) timeline(r *http.Request, _ session.Viewer) (any, error) {
	ctx, name := r.Context(), strings.TrimSpace(r.FormValue("user"))
	if name == "" || len(name) > maxName {
		return nil, bad("Name a user: by handle, id or number.")
	}
	u, err := p.cfg.Directory.Named(ctx, name)
	if err != nil {
		return nil, err
	}
	in, err := p.cfg.Audit.Inspect(ctx, u.ID)
	if err != nil {
		return nil, err
	}
	answer := map[string]any{
		"user": u.ID, "handle": u.Handle, "active": in.Active, "state": in.State.String(), "ready": in.State == timeline.Ready, "epoch": in.Epoch,
		"entries": in.Entries, "newest": momentOf(in.Newest), "floor": momentOf(in.Floor),
		"followees": in.Followees, "merged": len(in.Merged), "allMerged": in.AllMerged,
	}
	if r.FormValue("verify") == "" {
		return answer, nil
	}
	d, err := p.cfg.Audit.Verify(ctx, u.ID, verifyGrace)
	answer["verified"] = map[string]any{"checked": d.Checked, "missing": len(d.Missing), "extra": len(d.Extra)}
	return answer, err
}

// rebuild builds a user's timeline in Redis again.
func (p *Page) rebuild(r *http.Request, admin session.Viewer) (any, error) {
	var asked struct{ User, Note string }
	if err := read(r, &asked); err != nil {
		return nil, err
	}
	u, err := p.cfg.Directory.Named(r.Context(), strings.TrimSpace(asked.User))
	if err != nil {
		return nil, err
	}
	built := false
	err = p.cfg.Moderation.Operate(r.Context(), moderation.By(admin),
		moderation.Action{Kind: auditentry.ActionREBUILD_TIMELINE, SubjectKind: auditentry.SubjectKindUser, Subject: u.ID, Note: asked.Note},
		func(ctx context.Context) (err error) {
			built, err = p.cfg.Audit.Rebuild(ctx, u.ID)
			return err
		})
	return map[string]any{"built": built}, err
}

// retry gives dead jobs another full set of attempts: the jobs with the given ids, or all.
func (p *Page) retry(r *http.Request, admin session.Viewer) (any, error) {
	var asked struct {
		IDs  []int64
		All  bool
		Note string
	}
	if err := read(r, &asked); err != nil {
		return nil, err
	}
	if asked.All == (len(asked.IDs) > 0) {
		return nil, bad("Name jobs by their ids, or ask for all.")
	}
	ctx, of := r.Context(), asked.IDs
	if asked.All {
		var err error
		if of, err = p.cfg.Queue.DeadIDs(ctx); err != nil {
			return nil, err
		}
		if len(of) == 0 {
			return map[string]any{"retried": 0}, nil
		}
	}
	var found []int64
	err := p.cfg.Moderation.Operate(ctx, moderation.By(admin), moderation.OfJobs(auditentry.ActionRETRY_JOBS, of, asked.Note),
		func(ctx context.Context) (err error) {
			found, err = p.cfg.Queue.Retry(ctx, of...)
			return err
		})
	if err == nil && len(found) == 0 {
		err = &failure{http.StatusNotFound, "NOT_FOUND", "There is no such job: it is done, or never was."}
	}
	return map[string]any{"retried": len(found)}, err
}

// discard deletes dead jobs: all the named ones, or none.
func (p *Page) discard(r *http.Request, admin session.Viewer) (any, error) {
	var asked struct {
		IDs  []int64
		Note string
	}
	if err := read(r, &asked); err != nil {
		return nil, err
	}
	if len(asked.IDs) == 0 {
		return nil, bad("Name jobs by their ids.")
	}
	var enqueued []string
	err := p.cfg.Moderation.Operate(r.Context(), moderation.By(admin), moderation.OfJobs(auditentry.ActionDISCARD_JOBS, asked.IDs, asked.Note),
		func(ctx context.Context) (err error) {
			enqueued, err = p.cfg.Queue.Discard(ctx, job.Replacement, asked.IDs...)
			return err
		})
	switch {
	case errors.Is(err, queue.ErrNoJob):
		err = &failure{http.StatusNotFound, "NOT_FOUND", "There is no such job: it is done, or never was."}
	case errors.Is(err, queue.ErrNotDead):
		err = &failure{http.StatusConflict, "CONFLICT", "The job is not given up any more, so it will be done."}
	case errors.Is(err, queue.ErrNeeded):
		err = &failure{http.StatusConflict, "CONFLICT", "No other job does this work: fix the cause of its error, then try it again."}
	}
	return map[string]any{"discarded": len(asked.IDs), "feedsStale": len(enqueued) > 0}, err
}

// workers pauses or resumes the workers of a process.
func (p *Page) workers(r *http.Request, admin session.Viewer) (any, error) {
	var asked struct {
		ID     int64
		Wanted process.Wanted
		Note   string
	}
	if err := read(r, &asked); err != nil {
		return nil, err
	}
	if process.WantedValidator(asked.Wanted) != nil {
		return nil, bad(`Wanted is "pause" or "run".`)
	}
	_, changed, err := p.cfg.Fleet.Want(r.Context(), moderation.By(admin), asked.ID, asked.Wanted, asked.Note)
	switch {
	case errors.Is(err, fleet.ErrNoProcess):
		err = &failure{http.StatusNotFound, "NOT_FOUND", "There is no such process: it has ended, or never was."}
	case errors.Is(err, fleet.ErrNoWorkers), errors.Is(err, fleet.ErrGone):
		err = &failure{http.StatusConflict, "CONFLICT", "The process cannot be told: it has no workers, or gives no sign of life."}
	}
	return map[string]any{"changed": changed}, err
}
