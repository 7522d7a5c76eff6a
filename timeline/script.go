package timeline

import (
	"context"
	"embed"

	"github.com/redis/go-redis/v9"

	"tideline/internal/redisclient"
)

//go:embed lua
var lua embed.FS

var (
	pageScript                = onFeed("page")
	digestScript              = onFeed("digest")
	beginScript               = onFeed("begin")
	finishScript              = onFeed("finish")
	addScript                 = onFeed("add")
	removeScript              = onFeed("remove")
	trimScript                = onFeed("trim")
	extendScript              = onFeed("extend")
	activateScript            = anywhere("activate")
	deliverLateScript         = onFeed("deliver_late")
	changesScript             = onFeed("changes")
	replaceScript             = onFeed("replace")
	invalidatePositionsScript = onFeed("invalidate_positions")
	showScript                = onFeed("show")
	dropScript                = onFeed("drop")
	latestScript              = anywhere("latest")
	storeLatestScript         = script("store_latest")
	raiseLatestScript         = anywhere("raise_latest")
	markScript                = anywhere("mark")
	fencedScript              = anywhere("fenced")
	unwatchScript             = anywhere("unwatch")
	watchScript               = anywhere("watch")
	recordScript              = anywhere("record")
)

// anywhere returns a script that can read its incarnation of Redis. onFeed returns one that runs on
// a feed.
func anywhere(name string) *redis.Script { return script("incarnation", name) }
func onFeed(name string) *redis.Script   { return script("incarnation", "feed", name) }

// script returns a script that concatenates these files.
func script(names ...string) *redis.Script {
	text := ""
	for _, name := range names {
		part, err := lua.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // the names are constants
		}
		text += string(part)
	}
	return redis.NewScript(text)
}

// call is one execution of a script.
type call struct {
	script *redis.Script
	keys   []string
	args   []any
}

// onFeeds returns calls of one script on several feeds with the same arguments.
func onFeeds(script *redis.Script, feeds []Key, args ...any) []call {
	calls := make([]call, len(feeds))
	for i, k := range feeds {
		calls[i] = call{script, k.keys(), args}
	}
	return calls
}

// scripts runs scripts on a Redis.
type scripts struct{ rdb redisclient.Client }

// run executes the calls in one pipeline. Calls on the same slot run in order. A server that is new
// or was wiped does not know the scripts and rejects the calls. run then sends those calls again in
// a second pipeline with the text of their scripts.
func (s scripts) run(ctx context.Context, calls ...call) ([]*redis.Cmd, error) {
	return s.runBehind(ctx, func(redis.Pipeliner) {}, calls...)
}

// runBehind is run with other commands before the calls in the pipeline.
func (s scripts) runBehind(ctx context.Context, others func(redis.Pipeliner), calls ...call) ([]*redis.Cmd, error) {
	done := make([]*redis.Cmd, len(calls))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		others(p)
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
func (s scripts) runOne(ctx context.Context, script *redis.Script, k Key, args ...any) (*redis.Cmd, error) {
	done, err := s.run(ctx, call{script, k.keys(), args})
	if err != nil {
		return nil, err
	}
	return done[0], nil
}
