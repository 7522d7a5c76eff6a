package hostile

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

// inTime bounds a request with a deadline of one second. Without that deadline SQLite would
// wait ten seconds for a lock, and a frozen Redis would never answer.
const inTime = 8 * time.Second

// A request ends at its deadline if SQL is locked or Redis is frozen.
func TestDeadlines(t *testing.T) {
	const write = `mutation { updateProfile(input: {bio: "x"}) { user { bio } } }`
	const read = `{ timeline { nodes { id } } }`
	for name, database := range map[string]func(*testing.T) string{
		"sqlite":   func(*testing.T) string { return "" },
		"postgres": func(t *testing.T) string { return storagetest.PostgresURL(t) },
	} {
		t.Run(name, func(t *testing.T) {
			redis, url := storagetest.StartRedis(t), database(t)
			p := start(t, "--request-timeout=1s", "--redis-url="+redis.URL(), "--database-url="+url)
			token := p.signUp("x")
			stores := storagetest.Open(t, storage.Config{DataDir: p.dir, DatabaseURL: url, RedisURL: redis.URL()})

			lock, err := stores.DB.Tx(t.Context())
			require.NoError(t, err)
			require.NoError(t, lock.User.Update().SetBio("held").Exec(t.Context()))
			late := p.ask(write, nil, as(token))
			assert.Contains(t, late.body, `"TIMEOUT"`)
			assert.Less(t, late.took, inTime)
			assert.NotContains(t, p.ask(read, nil, as(token)).body, "errors", "readers do not wait for writers")
			require.NoError(t, lock.Rollback())
			assert.NotContains(t, p.ask(write, nil, as(token)).body, "errors")

			redis.Freeze()
			t.Cleanup(redis.Thaw)
			for _, query := range []string{read, write, `mutation { createPost(input: {text: "x"}) { post { id } } }`} {
				got := p.ask(query, nil, as(token))
				assert.Less(t, got.took, inTime, query)
				assert.NotRegexp(t, `(?i)redis|sql|dial|i/o`, got.body)
				t.Logf("with a frozen Redis, after %v: %s", got.took, got.body)
			}
			require.Eventually(t, func() bool {
				return !strings.Contains(p.ask(read, nil, as(token)).body, "errors")
			}, patience, poll, "SQL answers when Redis does not")
			redis.Thaw()
			require.Eventually(t, p.ready, patience, poll)
			assert.NotContains(t, p.ask(read, nil, as(token)).body, "errors")
		})
	}
}
