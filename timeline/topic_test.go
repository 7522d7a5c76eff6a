package timeline_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// texts returns a change of the topic for each text.
func texts(topic timeline.Topic, list ...string) (changes []timeline.TopicChange) {
	for _, text := range list {
		changes = append(changes, timeline.TopicChange{Topic: topic, Text: text})
	}
	return changes
}

// A change is recorded only while somebody watches. The record holds the newest changes, in their order.
func TestTopicIsRecordedWhileItIsWatched(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, err := timeline.New(rdb, timeline.Config{})
		require.NoError(t, err)
		ctx, topics := t.Context(), s.Topics
		one, other := timeline.Conversation(7), timeline.Relations(7)
		recorded, err := topics.Record(ctx, append(texts(one, "a"), texts(other, "b")...)...)
		require.NoError(t, err)
		require.Equal(t, make([]timeline.Recorded, 2), recorded)
		written, err := rdb.Exists(ctx, "tl:{c7}:r").Result()
		require.NoError(t, err)
		require.Zero(t, written)

		changes, begin, whole, err := topics.Watch(ctx, one, timeline.Mark{})
		require.NoError(t, err)
		require.False(t, whole)
		require.Empty(t, changes)
		recorded, err = topics.Record(ctx, append(texts(one, "a", "b"), texts(other, "c")...)...)
		require.NoError(t, err)
		require.Equal(t, []timeline.Recorded{
			{Watched: true, At: timeline.Mark{Epoch: begin.Epoch, Offset: 1}}, {Watched: true, At: timeline.Mark{Epoch: begin.Epoch, Offset: 2}}, {},
		}, recorded)
		for since, want := range [][]string{{"a", "b"}, {"b"}, nil} {
			changes, now, whole, err := topics.Watch(ctx, one, timeline.Mark{Epoch: begin.Epoch, Offset: int64(since)})
			require.NoError(t, err)
			require.True(t, whole)
			require.Equal(t, want, changes)
			require.Equal(t, recorded[1].At, now)
		}
		for _, unknown := range []timeline.Mark{{Epoch: begin.Epoch, Offset: 3}, {Epoch: begin.Epoch, Offset: -1}, {Epoch: "x"}, {}} {
			_, now, whole, err := topics.Watch(ctx, one, unknown)
			require.NoError(t, err)
			require.False(t, whole)
			require.Equal(t, recorded[1].At, now)
		}

		var many []string
		for n := range timeline.TopicCap {
			many = append(many, fmt.Sprint(n))
		}
		_, err = topics.Record(ctx, texts(one, many...)...)
		require.NoError(t, err)
		changes, now, whole, err := topics.Watch(ctx, one, recorded[1].At)
		require.NoError(t, err)
		require.True(t, whole)
		require.Equal(t, many, changes)
		_, _, whole, err = topics.Watch(ctx, one, recorded[0].At)
		require.NoError(t, err)
		require.False(t, whole)

		// A change without a text cannot be told.
		_, err = topics.Record(ctx, texts(one, "", "z")...)
		require.NoError(t, err)
		_, end, whole, err := topics.Watch(ctx, one, now)
		require.NoError(t, err)
		require.False(t, whole)
		changes, _, whole, err = topics.Watch(ctx, one, timeline.Mark{Epoch: end.Epoch, Offset: end.Offset - 1})
		require.NoError(t, err)
		require.True(t, whole)
		require.Equal(t, []string{"z"}, changes)

		left, err := rdb.PTTL(ctx, "tl:{c7}:r").Result()
		require.NoError(t, err)
		require.InDelta(t, timeline.TopicLife.Seconds(), left.Seconds(), 60)
		require.NoError(t, rdb.Del(ctx, "tl:{c7}:r").Err())
		_, again, whole, err := topics.Watch(ctx, one, end)
		require.NoError(t, err)
		require.False(t, whole)
		require.NotEqual(t, end.Epoch, again.Epoch)
	})
}

// What was recorded before Redis was rolled back is unknown, and those who watch are told to look.
func TestTopicAfterARollback(t *testing.T) {
	t.Parallel()
	eachRollback(t, func(t *testing.T, rdb redisclient.Client, remember, rollBack func()) {
		s, err := timeline.New(rdb, timeline.Config{})
		require.NoError(t, err)
		ctx, topics, topic := t.Context(), s.Topics, timeline.Conversation(7)
		_, begin, _, err := topics.Watch(ctx, topic, timeline.Mark{})
		require.NoError(t, err)
		remember()
		_, err = topics.Record(ctx, texts(topic, "lost")...)
		require.NoError(t, err)
		rollBack()
		recorded, err := topics.Record(ctx, texts(topic, "next")...)
		require.NoError(t, err)
		require.Equal(t, []timeline.Recorded{{Watched: true}}, recorded)
		_, now, whole, err := topics.Watch(ctx, topic, begin)
		require.NoError(t, err)
		require.False(t, whole)
		require.NotEqual(t, begin.Epoch, now.Epoch)
	})
}

func TestMarkIsSentWithAText(t *testing.T) {
	t.Parallel()
	at := timeline.Mark{Epoch: "E", Offset: 12}
	for _, text := range []string{"", "1 2 3 ", "a b"} {
		got, rest := timeline.ParseMark(at.With(text))
		require.Equal(t, at, got)
		require.Equal(t, text, rest)
	}
	for _, text := range []string{timeline.Mark{}.With("x"), "E", "E 1", "E x y", " 1 "} {
		got, _ := timeline.ParseMark(text)
		require.Zero(t, got.Offset, text)
	}
}
