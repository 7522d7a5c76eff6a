package storage

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPipe(t *testing.T) {
	t.Parallel()
	client, server := newPipe()
	_, err := client.Write([]byte("question"))
	require.NoError(t, err)
	b := make([]byte, 100)
	n, err := server.Read(b)
	require.NoError(t, err)
	assert.Equal(t, "question", string(b[:n]))

	_, err = server.Write([]byte("answer"))
	require.NoError(t, err)
	require.NoError(t, server.Close())
	n, err = client.Read(b)
	require.NoError(t, err, "what was written before the end arrives")
	assert.Equal(t, "answer", string(b[:n]))
	_, err = client.Read(b)
	require.ErrorIs(t, err, io.EOF)
	_, err = client.Write(b)
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.NoError(t, client.Close())
	_, err = client.Read(b)
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestPipeDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := newPipe()
		read := func() error {
			_, err := client.Read(make([]byte, 1))
			return err
		}
		start := time.Now()
		require.NoError(t, client.SetDeadline(start.Add(time.Second)))
		require.ErrorIs(t, read(), os.ErrDeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))

		// A later deadline takes effect, and so does one that is moved while a read waits.
		require.NoError(t, client.SetDeadline(start.Add(time.Hour)))
		go func() {
			time.Sleep(time.Second)
			_ = client.SetDeadline(time.Now())
		}()
		require.ErrorIs(t, read(), os.ErrDeadlineExceeded)

		require.NoError(t, client.SetDeadline(time.Time{}))
		go func() {
			time.Sleep(24 * time.Hour)
			_ = server.Close()
		}()
		require.ErrorIs(t, read(), io.EOF)
	})
}

func TestPipeCutsWhoDoesNotRead(t *testing.T) {
	t.Parallel()
	answers := newStream(8)
	for range 2 {
		_, err := answers.write([]byte("1234"))
		require.NoError(t, err)
	}
	_, err := answers.write([]byte("5"))
	require.ErrorIs(t, err, errPipeFull)
	_, err = answers.read(make([]byte, 8))
	require.ErrorIs(t, err, errPipeFull)

	_, err = newStream(0).write(make([]byte, 1<<10))
	require.NoError(t, err, "requests are not limited")
}

// A pipeline is written completely before its first answer is read.
func TestEmbeddedRedisTakesAnyPipeline(t *testing.T) {
	t.Parallel()
	e := startEmbedded()
	defer e.close()
	rdb := e.client()
	defer rdb.Close()
	const size = 20_000
	pipe := rdb.Pipeline()
	for i := range size {
		pipe.SAdd(t.Context(), "set", i)
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, size, rdb.SCard(t.Context(), "set").Val())
}

func TestEmbeddedRedisIsNotHeldUpByASubscriber(t *testing.T) {
	t.Parallel()
	e := startEmbedded()
	defer e.close()
	rdb := e.client()
	defer rdb.Close()
	sub := rdb.Subscribe(t.Context(), "news")
	defer sub.Close()
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	message := bytes.Repeat([]byte("x"), 10<<10)
	for range 2000 { // the messages are not read
		require.NoError(t, rdb.Publish(t.Context(), "news", message).Err())
	}
	got, err := sub.ReceiveMessage(t.Context())
	require.NoError(t, err)
	assert.Len(t, got.Payload, len(message))
}

func TestEmbeddedRedisExpiresKeys(t *testing.T) {
	t.Parallel()
	e := startEmbedded()
	defer e.close()
	rdb := e.client()
	defer rdb.Close()
	require.NoError(t, rdb.Set(t.Context(), "k", "v", time.Second).Err())
	require.Eventually(t, func() bool {
		return errors.Is(rdb.Get(t.Context(), "k").Err(), redis.Nil)
	}, time.Minute, 50*time.Millisecond)
}

func TestEmbeddedRedisEndsWithBlockedReaders(t *testing.T) {
	t.Parallel()
	e := startEmbedded()
	rdb := e.client()
	defer rdb.Close()
	done := make(chan error)
	go func() {
		done <- rdb.BLPop(t.Context(), 0, "empty").Err()
	}()
	require.Eventually(t, func() bool { return e.redis.CurrentConnectionCount() > 0 }, time.Minute, time.Millisecond)
	require.NoError(t, e.close())
	require.Error(t, <-done)
	require.ErrorContains(t, rdb.Ping(t.Context()).Err(), "closed")
}
