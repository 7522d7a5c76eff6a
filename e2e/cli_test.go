package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/auditentry"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// run runs a command and waits for it. It returns the exit code and the output.
func run(t *testing.T, settings []string, args ...string) (code int, out string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience) // ends a command that serves although it should refuse
	defer cancel()
	cmd := command(ctx, settings, args...)
	cmd.Dir = t.TempDir() // a data directory created by mistake is created there
	raw, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), string(raw)
	}
	require.NoError(t, err)
	return 0, string(raw)
}

func TestHelpNamesEverySetting(t *testing.T) {
	t.Parallel()
	code, out := run(t, nil, "--help")
	require.Zero(t, code, out)
	for _, word := range []string{
		"serve", "server", "worker", "migrate", "seed", "feeds", "jobs",
		"$TIDELINE_ADDR", "$TIDELINE_DATA_DIR", "$TIDELINE_DATABASE_URL", "$TIDELINE_REDIS_URL", "127.0.0.1:8080",
	} {
		require.Contains(t, out, word)
	}
}

// A process with a wrong argument or setting refuses to start and names it.
func TestRefusals(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	for name, c := range map[string]struct {
		settings []string
		args     []string
		says     []string
	}{
		"unknown flag":              {args: []string{"--adress=:1"}, says: []string{"--adress"}},
		"unknown command":           {args: []string{"sreve"}, says: []string{"sreve"}},
		"address":                   {args: []string{"--addr=8080"}, says: []string{"TIDELINE_ADDR", "host:port"}},
		"address nobody can use":    {args: []string{"--addr=192.0.2.1:1"}, says: []string{"192.0.2.1:1"}},
		"number":                    {settings: []string{"TIDELINE_INBOX_CAP=many"}, says: []string{"inbox-cap"}},
		"number out of bounds":      {settings: []string{"TIDELINE_INBOX_CAP=5"}, says: []string{"TIDELINE_INBOX_CAP", "300 to 1000"}},
		"duration":                  {settings: []string{"TIDELINE_ACTIVE_FOR=72"}, says: []string{"active-for"}},
		"choice":                    {args: []string{"--log-format=xml"}, says: []string{"text", "json"}},
		"two mistakes":              {args: []string{"--addr=x", "--max-sockets=0"}, says: []string{"TIDELINE_ADDR", "TIDELINE_MAX_SOCKETS"}},
		"another database":          {args: []string{"--database-url=mysql://localhost/x"}, says: []string{"postgres://"}},
		"another cache":             {args: []string{"--redis-url=memcached://localhost"}, says: []string{"redis://"}},
		"a database that is away":   {args: []string{"--database-url=postgres://localhost:1/x"}, says: []string{"localhost"}},
		"a Redis that is away":      {args: []string{"--redis-url=redis://localhost:1"}, says: []string{"localhost:1"}},
		"a server without Redis":    {args: []string{"server"}, says: []string{"TIDELINE_REDIS_URL", "tideline serve"}},
		"a worker without Redis":    {args: []string{"worker"}, says: []string{"TIDELINE_REDIS_URL", "tideline serve"}},
		"a schema that is not made": {settings: []string{"TIDELINE_MIGRATE=off"}, says: []string{"tideline migrate"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, out := run(t, c.settings, c.args...)
			require.NotZero(t, code, out)
			require.NotContains(t, out, "goroutine ")
			for _, word := range c.says {
				require.Contains(t, out, word)
			}
		})
	}
}

// A process with a misspelt setting starts, but its log names the setting.
func TestUnknownSettingIsNamed(t *testing.T) {
	t.Parallel()
	code, out := run(t, []string{"TIDELINE_DATA_DRI=x"}, "migrate")
	require.Zero(t, code, out)
	require.Contains(t, out, "TIDELINE_DATA_DRI")
	require.Contains(t, out, "did you mean TIDELINE_DATA_DIR?")
}

// Secrets may be in files. "config check" reports unsafe settings, and fails on them with
// --strict.
func TestConfigCheck(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "url")
	require.NoError(t, os.WriteFile(file, []byte("sqlite://"+filepath.Join(t.TempDir(), "topsecret.db")+"\n"), 0o600))
	settings := []string{"TIDELINE_DATABASE_URL_FILE=" + file}
	code, out := run(t, settings, "migrate")
	require.Zero(t, code, out)
	require.NotContains(t, out, "is no setting")
	code, out = run(t, settings, "config", "check")
	require.Zero(t, code, out)
	require.Contains(t, out, "topsecret.db", "the file names the database")
	require.Contains(t, out, "TIDELINE_PRODUCTION is off")
	code, out = run(t, settings, "config", "check", "--strict")
	require.NotZero(t, code, out)

	code, out = run(t, append(settings, "TIDELINE_DATABASE_URL=postgres://h/d"), "migrate")
	require.NotZero(t, code, out)
	require.Contains(t, out, "are both set")
	code, out = run(t, []string{"TIDELINE_REDIS_URL_FILE=" + file + "2"}, "version")
	require.NotZero(t, code, out)
	require.Contains(t, out, "TIDELINE_REDIS_URL_FILE")
	code, out = run(t, []string{"TIDELINE_ADDR_FILE=" + file}, "version")
	require.Zero(t, code, out)
	require.Contains(t, out, "TIDELINE_ADDR_FILE is no setting", "it is no secret")
}

// The command healthcheck checks a process without a shell or curl, for use in containers.
func TestHealthcheck(t *testing.T) {
	t.Parallel()
	settings := []string{"TIDELINE_DATA_DIR=" + t.TempDir()}
	p := start(t, settings, "--addr=127.0.0.1:0")
	address := "TIDELINE_ADDR=" + strings.TrimPrefix(p.url, "http://")
	code, out := run(t, []string{address}, "healthcheck")
	require.Zero(t, code, out)
	require.Contains(t, out, `"live":true`)
	code, out = run(t, nil, "healthcheck", "--ready", p.url)
	require.Zero(t, code, out)
	require.Contains(t, out, `"ready":true`)
	require.Zero(t, p.stop())
	code, out = run(t, []string{address}, "healthcheck")
	require.NotZero(t, code, out)
}

func TestVersion(t *testing.T) {
	t.Parallel()
	code, out := run(t, nil, "version")
	require.Zero(t, code, out)
	require.Regexp(t, `^tideline \S+ \(commit \S+, go1\.\S+, \w+/\w+\)\n$`, out)
	code, out = run(t, nil, "version", "--json")
	require.Zero(t, code, out)
	require.Regexp(t, `^\{"version":"[^"]+","commit":"[^"]+","go":"go[^"]+","platform":"[^"]+"\}\n$`, out)
}

// A retry of a job that does not exist fails with a message.
func TestRetryOfAJobThatIsNotThere(t *testing.T) {
	t.Parallel()
	settings := []string{"TIDELINE_DATA_DIR=" + t.TempDir()}
	code, out := run(t, settings, "migrate")
	require.Zero(t, code, out)
	code, out = run(t, settings, "jobs", "retry", "7", "8")
	require.NotZero(t, code, out)
	require.Contains(t, out, "there is no job 7, 8")
	code, out = run(t, settings, "jobs", "retry")
	require.Zero(t, code, out)
	require.Contains(t, out, "0 jobs will be tried again")
	code, out = run(t, settings, "jobs", "discard", "7")
	require.NotZero(t, code, out)
	require.Contains(t, out, "discard job 7: there is no such job")
}

// A retry from the command line is in the audit log. A retry of no jobs is not.
func TestRetryIsInTheAuditLog(t *testing.T) {
	t.Parallel()
	stores := storagetest.Real(t)
	settings := shared(stores)
	code, out := run(t, settings, "jobs", "retry", "--note=nothing")
	require.Zero(t, code, out)
	var ids []string
	for range 2 {
		j := stores.DB.Job.Create().SetKind("k").SetPool("small").SetPayload([]byte("{}")).SetCreatedAt(time.Now().UTC()).SetDueAt(time.Now().UTC()).SetDead(true).SaveX(t.Context())
		ids = append(ids, strconv.FormatInt(j.ID, 10))
	}
	code, out = run(t, settings, "jobs", "retry", ids[1], "--note=Redis is back")
	require.Zero(t, code, out)
	require.Contains(t, out, "1 job will be tried again")
	code, out = run(t, settings, "jobs", "retry")
	require.Zero(t, code, out)
	require.Contains(t, out, "1 job will be tried again")
	var notes []string
	for _, entry := range stores.DB.AuditEntry.Query().Order(auditentry.ByID()).AllX(t.Context()) {
		require.Equal(t, []any{auditentry.ActionRETRY_JOBS, int64(0)}, []any{entry.Action, entry.ActorID})
		require.Equal(t, 1, entry.Details.JobCount)
		notes = append(notes, fmt.Sprint(entry.Details.Jobs, entry.Note))
	}
	require.Equal(t, []string{"[" + ids[1] + "]Redis is back", "[" + ids[0] + "]"}, notes)
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	settings := []string{"TIDELINE_DATA_DIR=" + dir, "TIDELINE_MIGRATE=off"}
	for _, step := range []struct{ args, says string }{
		{"--plan", "without --plan it is made, with all tables"},
		{"", " applied, the last is 2"},
		{"", "there is nothing to do"},
		{"--plan", "there is nothing to do"},
		{"--phase=contract", "there is nothing to do"},
	} {
		code, out := run(t, settings, append([]string{"migrate"}, strings.Fields(step.args)...)...)
		require.Zero(t, code, out)
		require.Contains(t, out, step.says)
	}
	code, out := run(t, settings, "migrate", "--lock-timeout=0s")
	require.NotZero(t, code, out)
	require.Contains(t, out, "1ms to 1m")
	p := start(t, settings, "--addr=127.0.0.1:0")
	signUp(t, p, "ann")
	require.Zero(t, p.stop())
}

// The schema is not contracted while a process of an older version runs.
func TestContractWaitsForOlderProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	settings := []string{"TIDELINE_DATA_DIR=" + dir, "TIDELINE_MIGRATE=off"}
	code, out := run(t, settings, "migrate")
	require.Zero(t, code, out)
	stores, err := storage.Open(t.Context(), storage.Config{DataDir: dir}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	now := time.Now().UTC()
	old := stores.DB.Process.Create().SetID(7).SetHost("box").SetPid(1).SetVersion("0.0.1").SetRoles("workers").
		SetStartedAt(now).SetSeenAt(now).SetSubscriptions(0).SetJobs(0).SetPaused(false)
	require.NoError(t, old.Exec(t.Context()))
	require.NoError(t, stores.Close())

	code, out = run(t, settings, "migrate", "--phase=contract")
	require.NotZero(t, code, out)
	require.Contains(t, out, "7 on box is 0.0.1")
	p := start(t, settings, "--addr=127.0.0.1:0") // a process of this version starts anyway
	require.Zero(t, p.stop())
	code, out = run(t, settings, "migrate", "--phase=contract", "--force")
	require.Zero(t, code, out)
	require.Contains(t, out, "there is nothing to do")
}

// Commands that only read create nothing in a directory without a database. They report that
// there is none.
func TestReadingCommandsMakeNothing(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"jobs", "list"}, {"ps"}, {"keys", "list"}, {"webhooks", "list"}, {"recount"}, {"export"}, {"backup", "copy.db"},
		{"users", "export", "ann"}, {"feeds", "verify", "ann"}, {"migrate", "--plan"}, {"config", "check"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := command(t.Context(), nil, args...)
			cmd.Dir = dir
			raw, err := cmd.CombinedOutput()
			out := string(raw)
			if args[0] == "config" || args[0] == "migrate" {
				require.NoError(t, err, out)
			} else {
				require.Error(t, err)
				require.Contains(t, out, "there is no database yet")
				require.Contains(t, out, "TIDELINE_DATABASE_URL")
			}
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// Commands name the database that they use. The command backup prints the pg_dump command, with
// the variable that names the database: an environment variable or a file. The password is never
// printed.
func TestCommandsNameTheirDatabase(t *testing.T) {
	t.Parallel()
	url := strings.Replace(storagetest.PostgresURL(t), "postgres@", "postgres:topsecret@", 1)
	file := filepath.Join(t.TempDir(), "url")
	require.NoError(t, os.WriteFile(file, []byte(url+"\n"), 0o600))
	for setting, command := range map[string]string{
		"TIDELINE_DATABASE_URL=" + url:       `pg_dump --format=custom --file=copy "$TIDELINE_DATABASE_URL" `,
		"TIDELINE_DATABASE_URL_FILE=" + file: `pg_dump --format=custom --file=copy "$(cat "$TIDELINE_DATABASE_URL_FILE")" `,
	} {
		code, out := run(t, []string{setting}, "migrate")
		require.Zero(t, code, out)
		require.Contains(t, out, "Database: PostgreSQL on 127.0.0.1:")
		code, said := run(t, []string{setting}, "ps")
		require.Zero(t, code, said)
		require.Contains(t, said, "Database: PostgreSQL on 127.0.0.1:")
		code, copied := run(t, []string{setting}, "backup", "copy")
		require.NotZero(t, code, copied)
		require.Contains(t, copied, command)
		require.NotContains(t, out+said+copied, "topsecret")
	}
}

// Posts, follows and fan-outs work behind PgBouncer in transaction mode.
func TestBehindPgBouncer(t *testing.T) {
	t.Parallel()
	config := storagetest.Config(storagetest.Real(t))
	pooled := storagetest.StartPgBouncer(t, config.DatabaseURL)
	for _, more := range []string{"", "&default_query_exec_mode=exec"} {
		p := start(t, []string{"TIDELINE_DATABASE_URL=" + pooled + more, "TIDELINE_REDIS_URL=" + config.RedisURL}, "--addr=127.0.0.1:0")
		name := strconv.Itoa(len(more))
		ann, ben := signUp(t, p, "ann"+name), signUp(t, p, "ben"+name)
		ben.follow(t, p, ann)
		ann.post(t, p, "one")
		ben.arrived(t, p, "one")
		require.Zero(t, p.stop())
		require.NotContains(t, p.out.String(), "prepared statement")
	}
}
