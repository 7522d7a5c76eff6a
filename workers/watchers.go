package workers

import (
	"context"
	"fmt"

	"tideline/feed/job"
	"tideline/feed/visibility"
	"tideline/live"
	"tideline/timeline"
)

// This file tells the watchers of a conversation. Each change is first recorded, for clients that are
// away, and then published. If nobody watches, neither happens.

// tellConversation tells the watchers of the conversation of the fan-out's post, once for all attempts
// that know of each other. A client may be told again.
func (f *fanOut) tellConversation(ctx context.Context) error {
	if f.args.Root == 0 || f.progress.ToldConversation {
		return nil
	}
	c, told := f.args.InConversation()
	err := f.w.Timelines.Masters.WithinLimit(ctx, func(ctx context.Context) error {
		if told {
			return f.w.conversationsChanged(ctx, c)
		}
		return f.w.conversationsUnknown(ctx, f.args.Root)
	})
	if err = f.w.Timelines.Masters.MarkUnreached(ctx, err); err == nil {
		f.progress.ToldConversation = true
	}
	return f.reached(err) // the next attempt tells
}

// conversationsChanged tells the watchers of the conversations of some posts that the posts changed.
func (w *Workers) conversationsChanged(ctx context.Context, changes ...visibility.Changed) error {
	list := make([]timeline.TopicChange, len(changes))
	for i, c := range changes {
		list[i] = timeline.TopicChange{Topic: timeline.Conversation(c.Root), Text: c.String()}
	}
	recorded, err := w.Timelines.Topics.Record(ctx, list...)
	if err != nil {
		return err
	}
	for i, c := range changes {
		if err := w.publishConversation(ctx, recorded[i], live.Event{Post: c.Post, Author: c.Author, Reason: list[i].Text}, c.Root); err != nil {
			return err
		}
	}
	return nil
}

// conversationsUnknown tells the watchers of the conversations to read them again.
func (w *Workers) conversationsUnknown(ctx context.Context, roots ...int64) error {
	list := make([]timeline.TopicChange, len(roots))
	for i, root := range roots {
		list[i].Topic = timeline.Conversation(root)
	}
	recorded, err := w.Timelines.Topics.Record(ctx, list...)
	if err != nil {
		return err
	}
	for i, root := range roots {
		if err := w.publishConversation(ctx, recorded[i], live.Event{}, root); err != nil {
			return err
		}
	}
	return nil
}

// publishConversation publishes a change of a conversation that was recorded.
func (w *Workers) publishConversation(ctx context.Context, recorded timeline.Recorded, ev live.Event, root int64) error {
	if !recorded.Watched {
		return nil
	}
	ev.Kind, ev.Reason = live.ConversationChanged, recorded.At.With(ev.Reason)
	_, err := w.Publisher.Publish(ctx, ev, []int64{live.Conversation(root)})
	if err != nil {
		return fmt.Errorf("publish a change of conversation %d: %w", root, err)
	}
	return nil
}

// relationsUnknown tells the streams of conversations of the users that any relation of theirs may have
// changed.
func (w *Workers) relationsUnknown(ctx context.Context, users ...int64) error {
	list, recipients := make([]timeline.TopicChange, len(users)), make([]int64, len(users))
	for i, user := range users {
		list[i].Topic, recipients[i] = timeline.Relations(user), live.Relations(user)
	}
	if _, err := w.Timelines.Topics.Record(ctx, list...); err != nil {
		return err
	}
	_, err := w.Publisher.Publish(ctx, live.Event{Kind: live.JournalChanged}, recipients)
	return err
}

// tellOfAuthor tells the watchers of a conversation in which an author takes part, after the author was
// hidden or shown: one page of the author's posts. It returns the id up to which the posts are done, or 0
// if all are.
func (w *Workers) tellOfAuthor(ctx context.Context, author, after int64) (last int64, err error) {
	u, _, err := w.Visibility.Unchecked.WithAuthor(ctx, author, 0)
	if u == nil || err != nil {
		return 0, err
	}
	posts, last, err := w.Visibility.Unchecked.OfConversations(ctx, author, after, authorPage)
	if err != nil {
		return 0, err
	}
	var replies []visibility.Changed
	var roots []int64
	for _, p := range posts {
		j := job.Post{Post: p.ID, Author: author}.ToldToConversation(p)
		if u.Hidden { // otherwise nobody could see the post before
			j.From = p.Visibility
		}
		if c, told := j.InConversation(); told {
			replies = append(replies, c)
		} else {
			roots = append(roots, p.ID)
		}
	}
	if err := w.conversationsChanged(ctx, replies...); err != nil {
		return 0, err
	}
	return last, w.conversationsUnknown(ctx, roots...)
}

// authorPage is how many posts of an author one step of tellOfAuthor handles.
const authorPage = 500
