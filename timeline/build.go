package timeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"tideline/internal/errs"
)

// ErrBuildLost says that a build no longer belongs to the caller: Redis was wiped, the feed was
// dropped, or another builder has taken over. The caller needs to do nothing. If necessary, the
// next read begins again.
var ErrBuildLost = errors.New("build lost")

// Build is the right to fill one feed, from Begin to Finish.
type Build struct {
	key               Key
	epoch, generation int64
	offset            int64 // of the journal when the build began
	heard             int64 // when Redis last heard of the builder, in Unix milliseconds
}

// Begin starts a build. It returns started=false if there is nothing to do: the feed is Ready, or
// another builder has called Begin or Finish within the last 10 s. If the builder has been silent
// for longer, the caller continues its build. The epoch, the positions in its journal and the ids
// pushed meanwhile stay valid. The first of the two builders that finishes makes the feed Ready.
// The ids that either of them read are complete together with the pushes since, unless something
// was removed.
//
// From Begin on, Deliver, Add and Replace put ids into the feed, so a post that is committed after
// the builder has read SQL is not missed. Therefore read SQL after Begin, never before. Deliver
// reaches the inboxes of active users only, so call Visit before.
//
// Cost: one round trip.
func (f *Feeds) Begin(ctx context.Context, k Key) (b Build, started bool, err error) {
	now := f.cfg.nowMillis()
	b = Build{key: k, epoch: 1 + rand.Int64N(idMax), heard: now}
	activity := ""
	if k.kind == inbox {
		if activity, err = f.active.incarnation(ctx, k.id); err != nil {
			return Build{}, false, fmt.Errorf("begin build of %s: %w", k, err)
		}
	}
	cmd, err := f.runOne(ctx, beginScript, k,
		formatID(b.epoch), now, now-staleAfter.Milliseconds(), f.cfg.life(k), f.cfg.setLife(k), activity)
	if err != nil {
		return Build{}, false, fmt.Errorf("begin build of %s: %w", k, err)
	}
	reply, err := cmd.StringSlice()
	if err != nil || len(reply) != 3 {
		return Build{}, false, errs.Wrap(err, "begin build of %s", k)
	}
	for i, to := range []*int64{&b.epoch, &b.generation, &b.offset} {
		if *to, err = parseID(reply[i]); err != nil {
			return Build{}, false, fmt.Errorf("begin build of %s: %w", k, err)
		}
	}
	return b, true, nil
}

// Finish adds the ids that the builder read, in any order, to those that have arrived since Begin,
// and makes the feed Ready. floor is the id down to which the ids are complete, 0 if nothing older
// exists. It rises if the cap cuts ids off.
//
// Finish returns false and adds nothing if an id was removed from the feed since Begin, or since
// the last Finish of this build. Then read SQL again, and call Finish again with the same b, which
// Finish has updated. The build stays open for another 10 s. The error is ErrBuildLost if the build
// no longer belongs to the caller.
//
// Cost: one round trip, O(n log size).
func (f *Feeds) Finish(ctx context.Context, b *Build, ids []int64, floor int64) (ok bool, err error) {
	if err := checkIDs(ids...); err != nil {
		return false, fmt.Errorf("finish build of %s: %w", b.key, err)
	}
	limit := f.cfg.cap(b.key)
	ids, floor = keepNewest(ids, limit, floor)
	now := f.cfg.nowMillis()
	args := []any{formatID(b.epoch), formatID(b.generation), formatID(floor), limit,
		f.cfg.life(b.key), f.cfg.setLife(b.key), now}
	done, err := f.run(ctx, withLatestRaised(b.key, ids, call{finishScript, b.key.keys(), appendIDs(args, ids)})...)
	if err != nil {
		return false, fmt.Errorf("finish build of %s: %w", b.key, err)
	}
	reply, err := done[len(done)-1].StringSlice()
	switch {
	case err != nil:
		return false, fmt.Errorf("finish build of %s: %w", b.key, err)
	case reply[0] == "done":
		return true, nil
	case reply[0] == "removed":
		b.heard = now
		b.generation, err = parseID(reply[1])
		return false, errs.Wrap(err, "finish build of %s", b.key)
	default:
		return false, fmt.Errorf("finish build of %s: %w", b.key, ErrBuildLost)
	}
}

// Overdue reports whether the builder has been silent for so long that another one may have taken
// over.
func (f *Feeds) Overdue(b Build) bool {
	return f.cfg.nowMillis()-b.heard >= staleAfter.Milliseconds()
}

// Coverage returns the coverage of the feed at the beginning of the build.
func (b Build) Coverage() Coverage {
	return Coverage{Epoch: b.epoch, State: Building, Generation: b.generation}
}

// Position returns the end of the feed's journal at the beginning of the build.
func (b Build) Position() Position { return Position{Epoch: b.epoch, Offset: b.offset} }
