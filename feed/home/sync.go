package home

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"

	"tideline/feed/internal/rows"
	"tideline/feed/visibility"
	"tideline/internal/errs"
	"tideline/live"
	"tideline/timeline"
)

// Sync brings inboxes in line with SQL after changes of relations and muted words, and tells the
// users' clients. It is safe for concurrent use.
type Sync struct {
	feeds     *timeline.Feeds
	journals  *timeline.Journals
	fences    *timeline.Fences
	topics    *timeline.Topics
	posts     *visibility.Reader
	merged    *mergedAuthors
	publisher *live.Publisher
	log       *slog.Logger
}

// InboxAndNotify runs Inbox after a change of the relation between viewer and author that
// affects the viewer's timeline. Then it notifies the viewer's open subscriptions. They are told
// to read again if the inbox changed, or if there is no inbox and they may have read in SQL.
// Otherwise an earlier attempt may have changed the inbox and told nobody, so they are told to
// look at the journal. The change is also recorded for the viewer's streams of conversations.
//
// change is the number of the change. All this is done once for it: by the call that made the change or, if
// that call did not finish, by the job. A second time would tell clients to read again although they have
// already read the new timeline. again says that an earlier attempt of the job may have begun. It may have
// written to the inbox after the clients were told, so the inbox is compared anyway.
//
// others are the numbers of other changes between the same two users that were committed before
// the call. They are done together with this one.
//
// Cost: the cost of Inbox, and at most seven round trips. If the inbox does not change, also the cost of
// visibility.Reader.PullsDependentOn.
func (s *Sync) InboxAndNotify(ctx context.Context, viewer, author, change int64, again bool, others ...int64) error {
	if change != 0 && !again { // 0: the change has no number, and is done each time
		if told, err := s.journals.Told(ctx, viewer, change); told || err != nil {
			return err
		}
	}
	// A fan-out that read the relation before now rechecks this viewer when it ends.
	if err := s.fences.Fence(ctx, author, viewer); err != nil {
		return err
	}
	// Conversations may have posts of the author, whether or not the inbox has.
	if _, err := s.topics.Record(ctx, timeline.TopicChange{Topic: timeline.Relations(viewer), Text: strconv.FormatInt(author, 10)}); err != nil {
		return err
	}
	changed, err := s.inbox(ctx, viewer, author, &change)
	if err != nil {
		return err
	}
	ev := live.Event{Kind: live.JournalChanged}
	if changed {
		ev = live.Event{Kind: live.Invalidated, Author: author, Reason: "a relation changed"}
	}
	if _, err = s.publisher.Publish(ctx, ev, []int64{viewer, live.Relations(viewer)}); err != nil || change == 0 {
		return errs.Wrap(err, "tell of a changed inbox")
	}
	return s.journals.Tell(ctx, viewer, append(others, change)...)
}

// WordsChanged tells the viewer's clients to read again after a change of the words or conversations
// that the viewer mutes, or of the viewer's HomeReplies. Inboxes do not change: they hold posts whatever
// their words, and all replies; reads leave out the others. It does so once for the number of the change.
//
// Cost: at most four round trips.
func (s *Sync) WordsChanged(ctx context.Context, viewer, change int64) error {
	if told, err := s.journals.Told(ctx, viewer, change); told || err != nil {
		return err
	}
	if err := s.journals.InvalidatePositions(ctx, viewer, change); err != nil {
		return err
	}
	ev := live.Event{Kind: live.Invalidated, Reason: "muted words, muted conversations or the replies of the home timeline changed"}
	if _, err := s.publisher.Publish(ctx, ev, []int64{viewer}); err != nil {
		return fmt.Errorf("tell of changed words: %w", err)
	}
	return s.journals.Tell(ctx, viewer, change)
}

// TellRequests tells the user's devices that the requests to follow the user have changed. A
// device that is not reached finds out when it next reads the requests.
//
// Cost: a message to the user's connections.
func (s *Sync) TellRequests(ctx context.Context, user int64) {
	if _, err := s.publisher.Publish(ctx, live.Event{Kind: live.MarkerMoved}, []int64{user}); err != nil {
		s.log.WarnContext(ctx, "devices not told of a change of follow requests", "error", err)
	}
}

// Inbox makes the viewer's inbox agree with SQL about the posts of one author: it adds the
// posts that belong there and removes the others. It is level-triggered: the result depends on
// the present relation and not on its history. So it may run late, twice, and at the same time as
// the opposite change. changed reports whether the inbox changed, as far as Inbox can tell.
//
// The data that it reads may be old when it writes: meanwhile a relation may have changed and
// changed back, a post may have been hidden or shown, and the jobs of all these changes may be
// done. So it compares again after each write, until nothing differs. Any later change has its
// own job still to run.
//
// Cost: the inbox, and at most four queries of as many posts as it holds; twice that if the inbox
// changes.
func (s *Sync) Inbox(ctx context.Context, viewer, author int64) (changed bool, err error) {
	return s.inbox(ctx, viewer, author, nil)
}

// inbox is Inbox. If change is not nil, it also invalidates all earlier positions in the
// journal once the inbox has changed, or may have: a client that is away finds out when it
// resumes. Both are one step, because an attempt that dies after its write leaves no difference
// for the next one to find.
//
// If reads merge the author, or the timeline has a reply or repost that depends on a post of the
// author, the timeline changes although the inbox does not. If change is not nil, inbox then also
// invalidates the positions and returns true.
func (s *Sync) inbox(ctx context.Context, viewer, author int64, change *int64) (changed bool, err error) {
	var written []int64
	for range buildAttempts {
		wrote, known, err := s.once(ctx, viewer, author, change, &written)
		if err != nil {
			return changed, fmt.Errorf("make the inbox of %d agree about %d: %w", viewer, author, err)
		}
		changed = changed || wrote || !known
		if wrote {
			continue
		}
		if changed || change == nil {
			return changed, nil
		}
		differs, err := s.merged.mayMerge(ctx, author)
		if err == nil && !differs {
			differs, err = s.posts.PullsDependentOn(ctx, viewer, author, s.feeds.InboxCap())
		}
		if err != nil || !differs {
			return false, errs.Wrap(err, "read what else may differ")
		}
		return true, s.journals.InvalidatePositions(ctx, viewer, *change)
	}
	return changed, fmt.Errorf("the relation of %d and %d keeps changing", viewer, author)
}

// once compares the inbox with SQL once. wrote reports whether it changed the inbox, and
// known whether it could compare it. It adds the ids that it wrote to written. If written is not
// empty, it writes only ids in written: other posts may come and go all the time.
func (s *Sync) once(ctx context.Context, viewer, author int64, change *int64, written *[]int64) (wrote, known bool, err error) {
	k, limit := timeline.Inbox(viewer), s.feeds.InboxCap()
	// Builders at work must read SQL again.
	if err := s.feeds.Remove(ctx, k); err != nil {
		return false, false, err
	}
	ids, covered, err := s.feeds.Page(ctx, k, timeline.Range{Limit: 2 * limit})
	if err != nil {
		return false, false, err
	}
	if covered.State != timeline.Ready {
		if change != nil {
			if err := s.journals.InvalidatePositions(ctx, viewer, *change); err != nil {
				return false, false, err
			}
		}
		// The builder of this inbox decides whether posts that were written earlier belong there.
		if len(*written) == 0 {
			return false, false, nil
		}
		err := s.feeds.Remove(ctx, k, *written...)
		*written = nil
		return true, false, err
	}
	have, err := s.posts.Unchecked.WrittenBy(ctx, author, ids)
	if err != nil {
		return false, false, err
	}
	// A post that was added may be deleted since, and SQL no longer knows its author.
	for _, id := range *written {
		if slices.Contains(ids, id) && !slices.Contains(have, id) {
			have = append(have, id)
		}
	}
	above := timeline.Range{After: max(covered.Floor-1, 0), Limit: limit}
	posts, err := visibility.Fill(ctx, visibility.Inbox, viewer, above, s.posts.By(visibility.Inbox, author))
	if err != nil {
		return false, false, err
	}
	want, floor := rows.PostIDs(posts), int64(0)
	if len(want) == limit {
		floor = want[limit-1]
	}
	gone, missing := rows.Without(have, want), rows.Without(want, have)
	if before := *written; len(before) > 0 {
		other := func(id int64) bool { return !slices.Contains(before, id) }
		gone, missing = slices.DeleteFunc(gone, other), slices.DeleteFunc(missing, other)
	}
	if len(gone)+len(missing) > 0 || floor > covered.Floor {
		if err := s.feeds.Replace(ctx, viewer, gone, missing, floor, change != nil); err != nil {
			return false, false, err
		}
	}
	*written = slices.Concat(*written, gone, missing)
	return len(gone)+len(missing) > 0, true, nil
}
