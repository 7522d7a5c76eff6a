package server

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"tideline/server/machine"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// guarded are the settings of a server for strangers in which nothing is unsafe.
var guarded = []string{
	"--production", "--trusted-proxies=10.0.0.0/8", "--admin-addr=127.0.0.1:0", "--new-account-for=24h", "--max-sockets=10",
}

func TestUnsafeSettings(t *testing.T) {
	c, err := parse(t, guarded...)
	require.NoError(t, err)
	files, known := machine.OpenFiles()
	if known && files < uint64(c.MaxSockets+spareFiles) {
		require.Len(t, c.Unsafe(), 1, "this process may open few files")
	} else {
		require.Empty(t, c.Unsafe())
	}
	c, err = parse(t)
	require.NoError(t, err)
	require.Contains(t, strings.Join(c.Unsafe(), "\n"), "there is neither TLS")
	for want, arg := range map[string]string{
		"TIDELINE_PRODUCTION is off":                "--production=false",
		"takes everybody's word":                    "--trusted-proxies=0.0.0.0/0",
		"TIDELINE_ADDR answers /metrics":            "--admin-addr=",
		"TIDELINE_RATE_LIMIT is off":                "--rate-limit=off",
		"TIDELINE_NEW_ACCOUNT_FOR is 0s":            "--new-account-for=0s",
		"TIDELINE_SQLITE_SYNC is normal":            "--sqlite-sync=normal",
		"TIDELINE_MAX_SOCKETS needs 1005000":        "--max-sockets=1000000",
		"PostgreSQL on db may be reached without":   "--database-url=postgres://db/n",
		"Redis is reached without a password":       "--redis-url=rediss://cache",
		"TLS certificate cannot be read: open /no:": "--tls-cert=/no",
	} {
		args := append(slices.Clone(guarded), arg)
		if strings.HasPrefix(arg, "--tls-cert") {
			args = append(args, "--tls-key=/no")
		}
		c, err := parse(t, args...)
		require.NoError(t, err)
		require.Contains(t, strings.Join(c.Unsafe(), "\n"), want, arg)
	}
}

func TestUnsafeStores(t *testing.T) {
	c, err := parse(t)
	require.NoError(t, err)
	well := storage.Survey{SQLAhead: -clockWarning, Masters: []storage.Master{{Addr: "a", Eviction: "noeviction", Listpack: 1132, Ahead: clockWarning}, {}}}
	require.Empty(t, c.unsafeStores(well))
	hidden := c.unsafeStores(storage.Survey{Masters: []storage.Master{{Addr: "a", HidesIncarnation: true}}})
	require.Len(t, hidden, 1)
	require.Contains(t, hidden[0], "Redis a cannot be protected against a rollback")
	badly := c.unsafeStores(storage.Survey{
		SQLAhead: -2 * time.Second, Forgetful: []string{"fsync"},
		Masters: []storage.Master{{Addr: "a", Eviction: "allkeys-lru", Listpack: 128}, {Addr: "b", Ahead: 3 * time.Second}},
	})
	require.Len(t, badly, 5)
	for i, want := range []string{
		"PostgreSQL has fsync=off", "the clock of PostgreSQL is -2s apart", "Redis a has maxmemory-policy allkeys-lru",
		"Redis a has zset-max-listpack-entries 128: with 1132", "the clock of Redis b is 3s apart",
	} {
		require.Contains(t, badly[i], want)
	}
}

// A process for strangers logs at its start what the check finds unsafe. A process for
// this machine alone does not.
func TestStartWarnsOfWhatTheCheckFinds(t *testing.T) {
	config := storagetest.Config(storagetest.Real(t))
	stores := []string{"--database-url=" + config.DatabaseURL, "--redis-url=" + config.RedisURL}
	c, err := parse(t, append(stores, "--production")...)
	require.NoError(t, err)
	var out strings.Builder
	n, err := Check(t.Context(), c, Console{Out: &out, Log: t.Output()})
	require.NoError(t, err)
	require.Contains(t, out.String(), "PostgreSQL on 127.0.0.1:")
	require.Contains(t, out.String(), "PostgreSQL has fsync=off", "the tests' PostgreSQL does without")
	require.Contains(t, out.String(), "zset-max-listpack-entries")
	require.Equal(t, n, strings.Count(out.String(), "\n  - "))

	_, stop, log := startLogged(t, Serve, append(stores, "--production")...)
	require.Eventually(t, func() bool { return strings.Count(log.String(), `msg="unsafe for production"`) == n }, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, stop())

	_, stop, log = startLogged(t, Serve, stores...)
	require.NoError(t, stop())
	require.NotContains(t, log.String(), "unsafe")
}

func TestExposed(t *testing.T) {
	for arg, want := range map[string]bool{
		"--addr=127.0.0.1:1": false, "--addr=[::1]:1": false, "--addr=localhost:1": false, "--addr=:1": true, "--addr=0.0.0.0:1": true,
		"--addr=10.0.0.1:1": true, "--production": true,
	} {
		c, err := parse(t, arg)
		require.NoError(t, err)
		require.Equal(t, want, c.exposed(), arg)
	}
}

func TestCheckOfTheEmbeddedDefault(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	c, err := parse(t, append(guarded, "--data-dir="+dir)...)
	require.NoError(t, err)
	var out strings.Builder
	_, err = Check(t.Context(), c, Console{Out: &out, Log: t.Output()})
	require.NoError(t, err)
	require.Contains(t, out.String(), "'tideline serve' alone")
	require.NoDirExists(t, dir, "a check makes nothing")
}

func TestSecretsFromFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "url")
	const setting = "TIDELINE_DATABASE_URL"
	_, found, err := Secret(setting)
	require.NoError(t, err)
	require.False(t, found)

	t.Setenv(SecretFile(setting), file)
	_, _, err = Secret(setting)
	require.ErrorContains(t, err, "TIDELINE_DATABASE_URL_FILE")
	for text, want := range map[string]string{"postgres://u:topsecret@h/d\n": "postgres://u:topsecret@h/d", "": "", "topsecret\nanother\n": ""} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		value, found, err := Secret(setting)
		require.Equal(t, want, value)
		require.Equal(t, want != "", found)
		if want == "" {
			require.ErrorContains(t, err, "must have one line")
			require.NotContains(t, err.Error(), "topsecret")
		}
	}
	t.Setenv(setting, "postgres://h/d")
	_, _, err = Secret(setting)
	require.ErrorContains(t, err, "are both set")
}

// Each variable in a document or a deployment example is a setting. Each secret
// setting is marked as a secret.
func TestDocumentsNameSettingsThatExist(t *testing.T) {
	parser, err := kong.New(&Config{}, kong.DefaultEnvars(EnvPrefix), kong.Vars(Vars()))
	require.NoError(t, err)
	known := map[string]bool{}
	for _, flag := range parser.Model.Flags {
		for _, name := range flag.Envs {
			known[name] = true
			if flag.Tag.Has("secret") {
				known[SecretFile(name)] = true
			}
		}
	}
	require.True(t, known["TIDELINE_DATABASE_URL_FILE"])
	require.True(t, known["TIDELINE_REDIS_URL_FILE"])
	var files []string
	for _, pattern := range []string{"../*.md", "../Dockerfile", "../docs/*.md", "../docs/*/*.md", "../deploy/*", "../deploy/*/*", "../deploy/*/*/*", "../deploy/*/*/*/*"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	named := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || strings.HasSuffix(file, "CHANGELOG.md") {
			continue // a folder, or history
		}
		for _, name := range regexp.MustCompile(`TIDELINE_[A-Z_]*[A-Z]`).FindAllString(string(text), -1) {
			named++
			if !strings.HasPrefix(name, "TIDELINE_TEST_") && name != "TIDELINE_X_FILE" {
				require.True(t, known[name], "%s: %s is no setting", file, name)
			}
		}
	}
	require.Greater(t, named, 50)
}

func TestACertificateNearItsEndIsUnsafe(t *testing.T) {
	cert, key, _ := certificate(t) // valid for an hour
	c, err := parse(t, append(slices.Clone(guarded), "--tls-cert="+cert, "--tls-key="+key)...)
	require.NoError(t, err)
	require.Contains(t, strings.Join(c.Unsafe(), "\n"), "the TLS certificate ends at 20")
}

// The settings of the page about two machines leave nothing unsafe on either machine.
func TestTwoMachinesAreSafe(t *testing.T) {
	page, err := os.ReadFile("../docs/two-machines.md")
	require.NoError(t, err)
	unit, err := os.ReadFile("../deploy/systemd/tideline-server.service")
	require.NoError(t, err)
	heredoc := regexp.MustCompile(`(?s)cat >tideline.env <<END\n(.*?)END\n`).FindStringSubmatch(string(page))
	require.NotNil(t, heredoc)
	database := regexp.MustCompile(`echo '([^']+)' >database_url`).FindStringSubmatch(string(page))
	redis := regexp.MustCompile(`echo '([^']+)' >redis_url`).FindStringSubmatch(string(page))
	require.NotNil(t, database)
	require.NotNil(t, redis)
	admin := regexp.MustCompile(`TIDELINE_ADMIN_ADDR=(\S+)`).FindStringSubmatch(string(unit))
	require.NotNil(t, admin)
	addresses := map[string]bool{}
	for _, me := range []string{"10.0.0.1", "10.0.0.2"} {
		args := []string{"--admin-addr=" + admin[1], "--database-url=" + database[1], "--redis-url=" + redis[1], "--max-sockets=10"}
		for line := range strings.Lines(strings.ReplaceAll(heredoc[1], "$ME", me)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			args = append(args, "--"+strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "TIDELINE_")), "_", "-")+"="+value)
		}
		c, err := parse(t, args...)
		require.NoError(t, err)
		addresses[c.Addr] = true
		for _, unsafe := range c.Unsafe() {
			require.Contains(t, unsafe, "this process may open", "the unit lets it open more")
		}
	}
	require.Len(t, addresses, 2, "each machine serves at its own address")
}
