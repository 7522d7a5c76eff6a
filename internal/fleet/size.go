package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tideline/ent"
	"tideline/ent/auditentry"
	"tideline/ent/schema"
	"tideline/feed/moderation"
)

// Size names a number of a process that an operator may change while it runs.
type Size = schema.Size

// The sizes. They are stored: the names must not change.
const (
	SmallWorkers    Size = "smallWorkers"    // jobs of the pool that run at once
	LargeWorkers    Size = "largeWorkers"    // the same
	RelationWorkers Size = "relationWorkers" // the same
	FanOutPage      Size = "fanOutPage"      // followers that a fan-out reads and pushes to at a time
	LargeAudience   Size = "largeAudience"   // followers from which a post's fan-out is large; of servers
)

// Sizes are all of them, in the order in which they are shown.
var Sizes = []Size{SmallWorkers, LargeWorkers, RelationWorkers, FanOutPage, LargeAudience}

// Adjuster tells a size of this process, and changes it. Set refuses what is out of bounds.
type Adjuster struct {
	Now func() int
	Set func(int) error
}

// Errors of Scale.
var (
	ErrTooOld = errors.New("its version has no sizes that can be changed while it runs")
	ErrNoSize = errors.New("it has no use for that")
)

// adjust gives the sizes of this process what is wanted of them, and reports whether it
// changed one. What a size does not take is told once, and the size stays as it is.
func (m *Member) adjust(ctx context.Context, wanted map[Size]int) (changed bool) {
	for name, size := range m.cfg.Sizes {
		want, found := wanted[name]
		if !found {
			want = m.configured[name]
		}
		if want == size.Now() || m.refused[name] == want {
			continue
		}
		delete(m.refused, name)
		if err := size.Set(want); err != nil {
			m.refused[name] = want
			m.cfg.Logger.WarnContext(ctx, "a size stays as it is", "process", m.row.ID, "size", name, "now", size.Now(), "wanted", want, "err", err)
			continue
		}
		changed = true
		m.cfg.Logger.InfoContext(ctx, "a size is changed", "process", m.row.ID, "size", name, "now", want, "configured", m.configured[name])
	}
	m.wanted = wanted
	return changed
}

// sizes are what the row says of them, and what is wanted of them as far as this process
// knows; both in JSON.
func (m *Member) sizes() (now, wanted string, err error) {
	sizes := map[Size]schema.Sizing{}
	for name, size := range m.cfg.Sizes {
		sizes[name] = schema.Sizing{Now: size.Now(), Configured: m.configured[name]}
	}
	a, err := json.Marshal(sizes)
	if err != nil {
		return "", "", err
	}
	b, err := json.Marshal(m.wanted)
	return string(a), string(b), err
}

// WantedOf returns what a size of the process shall be.
func WantedOf(p *ent.Process, s Size) int {
	if n, found := p.WantedSizes[s]; found {
		return n
	}
	return p.Sizes[s].Configured
}

// Has reports whether the process has the size. One that is too old has none.
func Has(p *ent.Process, s Size) bool {
	_, found := p.Sizes[s]
	return found
}

// Scale has sizes of a process changed to these numbers; with none, all are as configured
// again. It reports whether something else was wanted before. What an actor, who may do
// this, changed is in the audit log. The bounds are those of the settings, and are the
// caller's to check: the process leaves a size as it is that it does not take. Errors:
// ErrNoProcess, ErrGone, ErrTooOld, ErrNoSize; a note that is too long.
//
// Cost: a short transaction. The process hears of it within RenewEvery. It holds until the
// process ends.
func (f *Fleet) Scale(ctx context.Context, who moderation.Actor, id int64, to map[Size]int, note string) (p *ent.Process, changed bool, err error) {
	return f.inTx(ctx, func(tx *ent.Tx) (*ent.Process, bool, error) { return f.scale(ctx, tx, who, id, to, note) })
}

func (f *Fleet) scale(ctx context.Context, tx *ent.Tx, who moderation.Actor, id int64, to map[Size]int, note string) (*ent.Process, bool, error) {
	// Of two operators at once, one comes after the other: what both want holds.
	if _, err := tx.ExecContext(ctx, "UPDATE processes SET wanted = wanted WHERE id = $1", id); err != nil {
		return nil, false, fmt.Errorf("lock process %d: %w", id, err)
	}
	p, err := tx.Process.Get(ctx, id)
	switch {
	case ent.IsNotFound(err):
		return nil, false, fmt.Errorf("there is no process %d: %w", id, ErrNoProcess)
	case err != nil:
		return nil, false, fmt.Errorf("read process %d: %w", id, err)
	case f.State(p) == Gone:
		return p, false, fmt.Errorf("process %d on %s is gone: %w since %s", id, p.Host, ErrGone, p.SeenAt.UTC().Format(time.RFC3339))
	case p.Sizes == nil:
		return p, false, fmt.Errorf("process %d on %s runs version %s: %w", id, p.Host, p.Version, ErrTooOld)
	}
	wanted := map[Size]int{}
	if len(to) > 0 {
		maps.Copy(wanted, p.WantedSizes)
	}
	for name, n := range to {
		if !Has(p, name) {
			return p, false, fmt.Errorf("process %d on %s (%s) has no %s: %w", id, p.Host, p.Roles, name, ErrNoSize)
		}
		if wanted[name] = n; n == p.Sizes[name].Configured {
			delete(wanted, name)
		}
	}
	said := changes(p, wanted)
	if said == "" {
		return p, false, nil
	}
	if p, err = tx.Process.UpdateOne(p).SetWantedSizes(wanted).Save(ctx); err != nil {
		return nil, false, fmt.Errorf("scale process %d: %w", id, err)
	}
	if note != "" {
		said += "; " + note
	}
	return p, true, moderation.Record(ctx, tx, who, auditentry.ActionSCALE_WORKERS, auditentry.SubjectKindProcess, id, said)
}

// changes says which sizes of the process shall be others than before.
func changes(p *ent.Process, wanted map[Size]int) string {
	var said []string
	for _, name := range slices.Sorted(maps.Keys(p.Sizes)) {
		before, n := WantedOf(p, name), p.Sizes[name].Configured
		if other, found := wanted[name]; found {
			n = other
		}
		if n != before {
			said = append(said, fmt.Sprintf("%s %d → %d", name, before, n))
		}
	}
	return strings.Join(said, ", ")
}
