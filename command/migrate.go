package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"entgo.io/ent/dialect"

	"tideline/internal/fleet"
	"tideline/server"
	"tideline/server/backend"
	"tideline/storage"
	"tideline/storage/migration"
)

// Vars returns values that the tags of commands refer to as ${...}.
func Vars() map[string]string {
	return map[string]string{"lock_timeout": migration.DefaultLockTimeout.String(), "lock_patience": migration.DefaultPatience.String()}
}

// Migrate changes the schema of the database, or shows the plan.
type Migrate struct {
	Plan        bool          `env:"-" help:"Say what would be done, statement by statement, what it locks and for how long, and do nothing."`
	Phase       string        `env:"-" enum:"expand,contract" default:"expand" help:"expand: what processes of the version before do not notice; contract: what only they need goes. Where there are no tables yet, both."`
	Force       bool          `env:"-" help:"Contract although a process of another version gives signs of life."`
	LockTimeout time.Duration `env:"-" default:"${lock_timeout}" help:"Wait this long for a lock of PostgreSQL, 1ms to 1m, then give way to whoever waits behind, and try again."`
	Wait        time.Duration `env:"-" default:"${lock_patience}" help:"Try for this long to get a lock."`
}

// Run applies the pending migrations of a phase, and reports them. Errors: the errors of migration.Apply; for
// the phase contract, a process of another version is running.
func (m Migrate) Run(ctx context.Context, c server.Config, console server.Console) error {
	if m.LockTimeout < time.Millisecond || m.LockTimeout > time.Minute || m.Wait <= 0 {
		return errors.New("--lock-timeout must be 1ms to 1m, and --wait above 0s")
	}
	access := server.CreateSQL
	if m.Plan {
		access = server.SQLAnySchema
	}
	err := with(ctx, c, console, access, func(b *backend.Backend) error {
		fmt.Fprintf(console.Out, "Database: %s.\n", c.Database())
		if m.Plan {
			return m.tell(ctx, b.Stores, console.Out)
		}
		return m.apply(ctx, b.Stores, console.Out)
	})
	if m.Plan && errors.Is(err, storage.ErrNoDatabase) {
		fmt.Fprintf(console.Out, "There is no %s yet: without --plan it is made, with all tables.\n", c.Database())
		return nil
	}
	return err
}

func (m Migrate) apply(ctx context.Context, stores *storage.Stores, out io.Writer) error {
	phase := migration.Phase(m.Phase)
	if phase == migration.Contract && !m.Force {
		if err := noOtherVersion(ctx, stores, time.Now); err != nil {
			return err
		}
	}
	applied, err := stores.Apply(ctx, migration.Options{Phase: phase, LockTimeout: m.LockTimeout, Patience: m.Wait})
	if err != nil {
		return err
	}
	if n := len(applied); n > 0 {
		fmt.Fprintf(out, "The schema is up to date now: %s applied, the last is %d.\n", count(n, "migration", "migrations"), applied[n-1].Version)
	} else {
		fmt.Fprintln(out, "The schema is up to date: there is nothing to do.")
	}
	left, err := stores.Pending(ctx)
	if err != nil {
		return err
	}
	if n := len(left.Of(migration.Contract)); n > 0 {
		fmt.Fprintf(out, "%s more to contract it, once no process of a version before is left: tideline migrate --phase=contract\n", count(n, "migration", "migrations"))
	}
	return nil
}

// noOtherVersion returns an error while a process of another version is running. Development
// builds cannot be told apart.
func noOtherVersion(ctx context.Context, stores *storage.Stores, now func() time.Time) error {
	plan, err := stores.Pending(ctx)
	if err != nil || plan.Fresh || len(plan.Of(migration.Expand)) > 0 { // the table of processes may not exist yet
		return err
	}
	all := fleet.New(stores.DB, now)
	list, err := all.List(ctx)
	if err != nil {
		return err
	}
	var others []string
	for _, p := range list {
		if p.Version != server.ThisBuild().Version && all.State(p) != fleet.Gone {
			others = append(others, fmt.Sprintf("%d on %s is %s", p.ID, p.Host, p.Version))
		}
	}
	if len(others) == 0 {
		return nil
	}
	return fmt.Errorf("this is version %s, and processes of others run, which may need what would go: %s. "+
		"Replace them first ('tideline ps' lists them), or say --force", server.ThisBuild().Version, strings.Join(others, ", "))
}

// tell prints the effect and the locks of each migration.
func (m Migrate) tell(ctx context.Context, stores *storage.Stores, out io.Writer) error {
	plan, err := stores.Pending(ctx)
	if err != nil {
		return err
	}
	now, later := plan.Of(migration.Expand), plan.Of(migration.Contract)
	if migration.Phase(m.Phase) == migration.Contract {
		now, later = later, nil
	}
	if plan.Fresh {
		now, later = plan.Pending, nil
	}
	if len(now)+len(later) == 0 {
		fmt.Fprintln(out, "The schema is up to date: there is nothing to do.")
		return nil
	}
	sizes, err := migration.Sizes(ctx, stores.SQL, stores.Dialect)
	if err != nil {
		return err
	}
	if plan.Fresh {
		fmt.Fprintln(out, "There are no tables yet: all migrations are applied, in their order, and nobody waits for them.")
	}
	t := teller{out, stores.Dialect, sizes}
	for _, p := range now {
		t.migration(p)
	}
	if len(later) > 0 {
		fmt.Fprint(out, "\nLater, once no process of a version before is left, by tideline migrate --phase=contract:\n")
		for _, p := range later {
			t.migration(p)
		}
	}
	if stores.Dialect == dialect.Postgres {
		fmt.Fprintf(out, "\nA lock for which others have to wait is itself waited for %s at the most; then the migration gives way, and tries again for %s.\n",
			m.LockTimeout, m.Wait)
		return nil
	}
	fmt.Fprintln(out, "\nSQLite: each migration is one transaction. Readers go on; whoever writes meanwhile waits, up to 10s, and then fails.")
	return nil
}

type teller struct {
	out     io.Writer
	dialect string
	sizes   map[string]string
}

func (t teller) migration(m migration.Migration) {
	how := "one transaction: locks are kept to its end"
	if !m.Transaction {
		how = "statement by statement"
	}
	fmt.Fprintf(t.out, "\n%d %s: %s, %s\n", m.Version, m.Name, m.Phase, how)
	for _, s := range m.Statements {
		fmt.Fprintf(t.out, "  %s\n", s.SQL)
		for _, e := range s.Effects {
			size := ""
			if of, found := t.sizes[e.Table]; found {
				size = fmt.Sprintf(" (%s now)", of)
			}
			fmt.Fprintf(t.out, "    locks %s%s\n", e, size)
		}
		if t.dialect == dialect.Postgres && len(s.Effects) == 0 {
			fmt.Fprintln(t.out, "    locks nothing that is in use")
		}
	}
}
