package timeline

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"tideline/internal/errs"
)

// Topic is something that clients watch and whose changes are recorded meanwhile. Its record is one
// key in Redis, which holds the newest changes.
type Topic struct{ key string }

// Conversation returns the topic of the posts of a conversation.
func Conversation(root int64) Topic { return Topic{"tl:{c" + formatID(root) + "}:r"} }

// Relations returns the topic of the user's relations to other users.
func Relations(user int64) Topic { return Topic{Inbox(user).part(":r")} }

const (
	// TopicCap is how many changes a record holds, in about 6 KB at most.
	TopicCap = 100
	// TopicLife is how long a record lives after the last Watch.
	TopicLife = 15 * time.Minute
)

// Mark is a position in the record of a topic. The zero Mark is none.
type Mark struct {
	// Epoch names the record. Nobody can guess it.
	Epoch  string
	Offset int64 // the number of earlier changes
}

// With returns a text that ParseMark takes apart. The zero Mark has none.
func (m Mark) With(text string) string {
	if m == (Mark{}) {
		return ""
	}
	return m.Epoch + " " + formatID(m.Offset) + " " + text
}

// ParseMark returns the position and the text that were passed to Mark.With. The position is zero for
// any other text.
func ParseMark(s string) (m Mark, text string) {
	epoch, rest, _ := strings.Cut(s, " ")
	offset, text, found := strings.Cut(rest, " ")
	number, err := strconv.ParseInt(offset, 10, 64)
	if err != nil || !found || epoch == "" {
		return Mark{}, ""
	}
	return Mark{epoch, number}, text
}

// Topics keeps the records of topics. It is safe for concurrent use.
//
// A record exists only while somebody watches, so that a change that nobody watches writes nothing.
// If Redis loses the record, or comes back as another incarnation, the next record has another
// epoch, and all earlier positions are unknown.
type Topics struct{ scripts }

// Watch returns the end of the topic's record, and the changes since a position, oldest first. It
// begins the record if there is none. For TopicLife from now on, every change is recorded. If whole
// is false, the changes are unknown, because the position is of another record, too old, or zero.
//
// Cost: one round trip, O(changes).
func (t *Topics) Watch(ctx context.Context, topic Topic, since Mark) (changes []string, now Mark, whole bool, err error) {
	done, err := t.run(ctx, call{watchScript, []string{topic.key}, []any{rand.Text(), TopicLife.Milliseconds(), TopicCap, since.Epoch, since.Offset}})
	if err == nil {
		changes, now, whole, err = watched(done[0])
	}
	return changes, now, whole, errs.Wrap(err, "watch %s", topic.key)
}

// watched decodes the reply of the watch script.
func watched(cmd *redis.Cmd) (changes []string, now Mark, whole bool, err error) {
	reply, err := cmd.Slice()
	if err != nil {
		return nil, now, false, err
	}
	if now, err = mark(reply, 4); err != nil {
		return nil, now, false, err
	}
	list, ok := reply[3].([]any)
	if !ok {
		return nil, now, false, fmt.Errorf("redis answered %T for changes", reply[3])
	}
	for _, entry := range list {
		text, ok := entry.(string)
		if !ok {
			return nil, now, false, fmt.Errorf("redis answered %T for a change", entry)
		}
		changes = append(changes, text)
	}
	return changes, now, reply[2] == int64(1), nil
}

// mark decodes the first two of the n elements of a reply.
func mark(reply []any, n int) (m Mark, err error) {
	if len(reply) != n {
		return m, fmt.Errorf("redis answered %d parts", len(reply))
	}
	var texts, numbers bool
	m.Epoch, texts = reply[0].(string)
	m.Offset, numbers = reply[1].(int64)
	if !texts || !numbers {
		return m, fmt.Errorf("redis answered %T and %T for a position", reply[0], reply[1])
	}
	return m, nil
}

// TopicChange is a change of a topic. An empty Text is a change that is not told: it invalidates all
// earlier positions.
type TopicChange struct {
	Topic Topic
	Text  string
}

// Recorded is the result of Record for one change.
type Recorded struct {
	// Watched says that somebody may watch the topic, and must be told.
	Watched bool
	// At is the position after the change. It is zero if Redis has lost what was recorded before:
	// then watchers must call Watch.
	At Mark
}

// Record records changes of topics that somebody may watch. Every call counts as another change, so a
// caller that repeats a call tells of the change twice.
//
// Cost: one round trip, O(1) a change.
func (t *Topics) Record(ctx context.Context, changes ...TopicChange) ([]Recorded, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	calls := make([]call, len(changes))
	for i, c := range changes {
		calls[i] = call{recordScript, []string{c.Topic.key}, []any{c.Text, TopicCap}}
	}
	done, err := t.run(ctx, calls...)
	if err != nil {
		return nil, errs.Wrap(err, "record changes")
	}
	list := make([]Recorded, len(changes))
	for i, cmd := range done {
		reply, err := cmd.Slice()
		if err == nil && len(reply) > 0 {
			list[i].Watched = true
			list[i].At, err = mark(reply, 2)
		}
		if err != nil {
			return nil, errs.Wrap(err, "record a change of %s", changes[i].Topic.key)
		}
		if list[i].At.Epoch == "" {
			list[i].At = Mark{}
		}
	}
	return list, nil
}
