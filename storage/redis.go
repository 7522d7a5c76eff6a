package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"tideline/internal/redisclient"
)

// clusterReload bounds how late a client notices a failover. With the default of go-redis, one
// minute, the keys of a dead master would stay unreachable that long.
const clusterReload = time.Second

// dialRedis asks the first server that answers whether it belongs to a Redis Cluster, and returns
// the matching client. Sentinels watch only single servers.
func dialRedis(ctx context.Context, servers *redisServers) (rdb redisclient.Client, sharded bool, err error) {
	if servers.sentinels != nil {
		return dialSentinels(ctx, servers)
	}
	var errs []error
	for _, addr := range servers.addrs {
		isCluster, err := askCluster(ctx, servers.first, addr)
		switch {
		case err != nil:
			errs = append(errs, err)
		case isCluster:
			return dialCluster(ctx, servers)
		case len(servers.addrs) > 1:
			return nil, false, fmt.Errorf(
				"Redis URL: several addresses are for a Redis Cluster, but %s is a single server", addr)
		default:
			return dialSingle(ctx, servers.first)
		}
	}
	return nil, false, errors.Join(errs...)
}

func askCluster(ctx context.Context, opts *redis.Options, addr string) (isCluster bool, err error) {
	probe := *opts
	probe.Addr = addr
	probe.DB = 0 // a cluster rejects other databases
	probe.ContextTimeoutEnabled = true
	probe.MaintNotificationsConfig = noMaintNotifications()
	client := redis.NewClient(&probe)
	info, err := client.Info(ctx, "cluster").Result()
	if err := errors.Join(err, client.Close()); err != nil {
		return false, fmt.Errorf("Redis at %s does not answer: %w", addr, err)
	}
	return strings.Contains(info, "cluster_enabled:1"), nil
}

func dialSingle(ctx context.Context, opts *redis.Options) (redisclient.Client, bool, error) {
	opts.ContextTimeoutEnabled = true
	opts.MaintNotificationsConfig = noMaintNotifications()
	client := redis.NewClient(opts)
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, false, errors.Join(fmt.Errorf("Redis at %s: %w", opts.Addr, err), client.Close())
	}
	return client, false, nil
}

// dialSentinels returns a client of the master that the Sentinels name. The client follows the
// master to another server: the Sentinels announce the change, and a client whose connection breaks
// asks them again.
func dialSentinels(ctx context.Context, servers *redisServers) (redisclient.Client, bool, error) {
	opts := servers.sentinels
	opts.SentinelAddrs = servers.addrs
	opts.ContextTimeoutEnabled = true
	client := redis.NewFailoverClient(opts)
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, false, errors.Join(fmt.Errorf("Redis master %s of the Sentinels at %s: %w",
			opts.MasterName, strings.Join(servers.addrs, ", "), err), client.Close())
	}
	return client, false, nil
}

func dialCluster(ctx context.Context, servers *redisServers) (redisclient.Client, bool, error) {
	if servers.first.DB != 0 {
		return nil, false, fmt.Errorf("Redis URL: a Redis Cluster has no database %d, only 0", servers.first.DB)
	}
	u := *servers.url
	if u.Scheme == "unix" {
		return nil, false, errors.New("Redis URL: a Redis Cluster is reached by redis:// or rediss://, not by a socket file")
	}
	u.Path = ""
	opts, err := redis.ParseClusterURL(u.String())
	if err != nil {
		return nil, false, fmt.Errorf("Redis URL: %w", withoutURL(err))
	}
	opts.Addrs = servers.addrs
	opts.ClusterStateReloadInterval = clusterReload
	opts.ContextTimeoutEnabled = true
	opts.MaintNotificationsConfig = noMaintNotifications()
	rdb := redis.NewClusterClient(opts)
	err = rdb.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		if err := master.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("%s: %w", master.Options().Addr, err)
		}
		return nil
	})
	if err != nil {
		return nil, false, errors.Join(fmt.Errorf("Redis Cluster: a master does not answer: %w", err), rdb.Close())
	}
	return rdb, true, nil
}

// noMaintNotifications stops go-redis from sending a command on every new connection that only
// hosted Redis services understand.
func noMaintNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// redisLog guards the logger of go-redis, which is global to the process. Outside of tests, a
// process has a single logger anyway.
var redisLog sync.Once

// redisLogger logs the messages that go-redis would print to standard error: lost connections,
// which callers also see as errors.
type redisLogger struct{ log *slog.Logger }

func (l redisLogger) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, "redis client", "message", fmt.Sprintf(format, v...))
}

// EachMaster calls fn with each master of Redis, its address, and the given sections of its INFO, one call at
// a time. Errors: a master does not answer.
func (s *Stores) EachMaster(ctx context.Context, fn func(master redisclient.Client, addr string, info map[string]string), sections ...string) error {
	one := func(ctx context.Context, master *redis.Client) error {
		text, err := master.Info(ctx, sections...).Result()
		if err != nil {
			return fmt.Errorf("ask Redis for its %s: %w", strings.Join(sections, " and "), err)
		}
		info := map[string]string{}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			info[name] = value
		}
		fn(master, master.Options().Addr, info)
		return nil
	}
	switch rdb := s.Redis.(type) {
	case *redis.ClusterClient:
		var turn sync.Mutex
		return rdb.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			turn.Lock()
			defer turn.Unlock()
			return one(ctx, master)
		})
	case *redis.Client:
		return one(ctx, rdb)
	}
	return nil
}
