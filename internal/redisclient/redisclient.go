// Package redisclient says what this program needs of a client of Redis.
package redisclient

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Client is a client of one Redis server or of a Redis Cluster: a *redis.Client or a *redis.ClusterClient, or one of
// these in another type, as by package batch.
//
// It takes the place of redis.UniversalClient for the sake of the compiler. Since go-redis 9.23, each package that
// mentions redis.UniversalClient, redis.Client, redis.Options or redis.PubSub compiles some thousand methods of an
// inner type once more, also if it only imports a type with such a field or method: 1,258 MB of objects for the
// packages of this module and their tests, and 720 MB since they mention Client instead.
type Client interface {
	redis.Cmdable
	Do(ctx context.Context, args ...any) *redis.Cmd
	AddHook(hook redis.Hook)
	PoolStats() *redis.PoolStats
	Close() error
}

// Sharded reports whether c is a client of a Redis Cluster. It is not inlined, so that its callers do not mention
// redis.ClusterClient.
//
//go:noinline
func Sharded(c Client) bool {
	_, sharded := c.(*redis.ClusterClient)
	return sharded
}
