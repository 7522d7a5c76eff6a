package storage

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"tideline/internal/redisclient"
)

// The values of Config.RedisIncarnation.
const (
	incarnationRequired = "required"
	incarnationOptional = "optional"
)

// The oldest supported server versions. Older ones lack sharded pub/sub and EXPIRE with GT, which
// only extends a time to live.
const (
	leastRedis  = 7
	leastValkey = 8
)

// ErrHidesIncarnation means that a Redis does not tell the incarnation of its data.
var ErrHidesIncarnation = errors.New("it hides master_replid in INFO replication, by which Tideline notices that Redis was rolled back, by a snapshot or by a replica that lacked the latest writes")

// checkServers checks the kind and version of each master. It fails if one is not supported, or
// hides its incarnation while that is required.
//
// Cost: one round trip to each master.
func (s *Stores) checkServers(ctx context.Context, incarnation string) error {
	if s.Embedded {
		return nil
	}
	var refused []error
	err := s.EachMaster(ctx, func(_ redisclient.Client, addr string, info map[string]string) {
		err := supported(info)
		if err == nil && hidesIncarnation(info) {
			s.HidesIncarnation = true
			if incarnation == incarnationOptional {
				s.log.WarnContext(ctx, "Redis may be rolled back unnoticed, and feeds then lack posts until they are built again", "addr", addr, "error", ErrHidesIncarnation)
			} else {
				err = fmt.Errorf("%w; to run without that protection, set --redis-incarnation=optional (TIDELINE_REDIS_INCARNATION)", ErrHidesIncarnation)
			}
		}
		if err != nil {
			refused = append(refused, fmt.Errorf("Redis at %s: %w", addr, err))
		}
	}, "server", "replication")
	return errors.Join(append(refused, err)...)
}

// hidesIncarnation reports whether the INFO sections server and replication lack the incarnation.
func hidesIncarnation(info map[string]string) bool { return info["master_replid"] == "" }

// supported returns an error if a server with this INFO section server cannot be used.
func supported(info map[string]string) error {
	const want = "Tideline runs on Redis 7 or later and Valkey 8 or later"
	for field, value := range info {
		// Other servers report both their own version and the Redis version that they emulate.
		name, isVersion := strings.CutSuffix(field, "_version")
		if isVersion && value != "" && (name == "dragonfly" || name == "garnet" || name == "keydb" || name == "kvrocks") {
			return fmt.Errorf("it is %s %s, which has other scripts, streams or pub/sub than Redis: %s", name, value, want)
		}
	}
	name, field, least := "Redis", "redis_version", leastRedis
	if info["valkey_version"] != "" || info["server_name"] == "valkey" {
		name, field, least = "Valkey", "valkey_version", leastValkey
	}
	version := info[field]
	major, err := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	switch {
	case version == "":
		return fmt.Errorf("it does not tell its version in INFO server: %s", want)
	case err != nil || major < least:
		return fmt.Errorf("it is %s %s, which lacks commands that are used: %s", name, version, want)
	}
	return nil
}
