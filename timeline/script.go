package timeline

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/incarnation.lua
	incarnationLua string
	//go:embed lua/feed.lua
	feedLua string
	//go:embed lua/page.lua
	pageLua string
	//go:embed lua/begin.lua
	beginLua string
	//go:embed lua/finish.lua
	finishLua string
	//go:embed lua/add.lua
	addLua string
	//go:embed lua/remove.lua
	removeLua string
	//go:embed lua/trim.lua
	trimLua string
	//go:embed lua/extend.lua
	extendLua string
	//go:embed lua/activate.lua
	activateLua string
	//go:embed lua/deliver_late.lua
	deliverLateLua string
	//go:embed lua/changes.lua
	changesLua string
	//go:embed lua/replace.lua
	replaceLua string
	//go:embed lua/invalidate_positions.lua
	invalidatePositionsLua string
	//go:embed lua/drop.lua
	dropLua string
	//go:embed lua/latest.lua
	latestLua string
	//go:embed lua/store_latest.lua
	storeLatestLua string
	//go:embed lua/raise_latest.lua
	raiseLatestLua string
	//go:embed lua/mark.lua
	markLua string
	//go:embed lua/fenced.lua
	fencedLua string
	//go:embed lua/unwatch.lua
	unwatchLua string
)

var (
	pageScript                = onFeed(pageLua)
	beginScript               = onFeed(beginLua)
	finishScript              = onFeed(finishLua)
	addScript                 = onFeed(addLua)
	removeScript              = onFeed(removeLua)
	trimScript                = onFeed(trimLua)
	extendScript              = onFeed(extendLua)
	activateScript            = anywhere(activateLua)
	deliverLateScript         = onFeed(deliverLateLua)
	changesScript             = onFeed(changesLua)
	replaceScript             = onFeed(replaceLua)
	invalidatePositionsScript = onFeed(invalidatePositionsLua)
	dropScript                = onFeed(dropLua)
	latestScript              = anywhere(latestLua)
	storeLatestScript         = redis.NewScript(storeLatestLua)
	raiseLatestScript         = anywhere(raiseLatestLua)
	markScript                = anywhere(markLua)
	fencedScript              = anywhere(fencedLua)
	unwatchScript             = anywhere(unwatchLua)
)

// anywhere is a script that knows in which incarnation of Redis it runs. onFeed is one
// on a feed.
func anywhere(lua string) *redis.Script { return redis.NewScript(incarnationLua + lua) }
func onFeed(lua string) *redis.Script   { return anywhere(feedLua + lua) }

// call is one execution of a script.
type call struct {
	script *redis.Script
	keys   []string
	args   []any
}

// onFeeds are calls of one script on several feeds with the same arguments.
func onFeeds(script *redis.Script, feeds []Key, args ...any) []call {
	calls := make([]call, len(feeds))
	for i, k := range feeds {
		calls[i] = call{script, k.keys(), args}
	}
	return calls
}

// run executes the calls in one pipeline, in order where they share a slot. A server
// that is new or was wiped does not know the scripts, and runs none. Then a second
// pipeline executes these calls with the text of their script.
func (s *Store) run(ctx context.Context, calls ...call) ([]*redis.Cmd, error) {
	done := make([]*redis.Cmd, len(calls))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, c := range calls {
			done[i] = c.script.EvalSha(ctx, p, c.keys, c.args...)
		}
		return nil
	})
	if err == nil {
		return done, nil
	}
	var unknown []int
	for i, cmd := range done {
		switch err := cmd.Err(); {
		case err == nil:
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			unknown = append(unknown, i)
		default:
			return nil, err
		}
	}
	if len(unknown) == 0 {
		return nil, err
	}
	_, err = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, i := range unknown {
			done[i] = calls[i].script.Eval(ctx, p, calls[i].keys, calls[i].args...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

// runOne executes one script on one feed.
func (s *Store) runOne(ctx context.Context, script *redis.Script, k Key, args ...any) (*redis.Cmd, error) {
	done, err := s.run(ctx, call{script, k.keys(), args})
	if err != nil {
		return nil, err
	}
	return done[0], nil
}
