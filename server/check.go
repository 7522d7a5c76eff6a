package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"tideline/feed/ranking"
	"tideline/server/machine"
	"tideline/storage"
)

// Unsafe lists what the settings of a valid configuration make unsafe when strangers use the server.
func (c Config) Unsafe() []string {
	var found []string
	when := func(is bool, format string, args ...any) {
		if is {
			found = append(found, fmt.Sprintf(format, args...))
		}
	}
	when(!c.Production, "TIDELINE_PRODUCTION is off: strangers may explore the API, by GraphiQL and introspection")
	when(c.TLSCert == "" && len(c.TrustedProxies) == 0,
		"there is neither TLS (TIDELINE_TLS_CERT) nor a proxy that is trusted (TIDELINE_TRUSTED_PROXIES): passwords and tokens travel in the clear, or all clients of a proxy share the limits of one address")
	when(slices.Contains(c.TrustedProxies, "0.0.0.0/0") || slices.Contains(c.TrustedProxies, "::/0"),
		"TIDELINE_TRUSTED_PROXIES takes everybody's word for the client's address: name the networks of your proxies")
	when(c.Metrics == "on" && c.AdminAddr == "", "TIDELINE_ADDR answers /metrics to everybody: set TIDELINE_ADMIN_ADDR, or TIDELINE_METRICS=off")
	when(c.RateLimit == "off", "TIDELINE_RATE_LIMIT is off: one client can take everything")
	when(c.SignUp == "on" && c.OwnAccounts == "on" && c.NewAccountFor == 0,
		"TIDELINE_NEW_ACCOUNT_FOR is 0s: an account of a minute may write as much as any other")
	when(c.DatabaseURL == "" && c.SQLiteSync == "normal", "TIDELINE_SQLITE_SYNC is normal: a power cut takes the last writes")
	when(c.TracesHeaders != "" && strings.HasPrefix(c.TracesEndpoint, "http:"), "TIDELINE_TRACES_ENDPOINT has no TLS: TIDELINE_TRACES_HEADERS travel in the clear")
	if files, known := machine.OpenFiles(); known {
		need := uint64(c.MaxSockets + spareFiles)
		when(files < need, "this process may open %d files: TIDELINE_MAX_SOCKETS needs %d", files, need)
	}
	if c.TLSCert != "" {
		until, err := c.certificateUntil()
		when(err != nil, "the TLS certificate cannot be read: %v", err)
		when(err == nil && time.Until(until) < certificateWarning, "the TLS certificate ends at %s", until.UTC().Format(time.RFC3339))
	}
	return append(found, c.storage().Risks()...)
}

const (
	spareFiles         = 5000 // besides one for each socket: requests, connections to the stores
	certificateWarning = 14 * 24 * time.Hour
	clockWarning       = time.Second // tolerable between machines with synchronized clocks
	surveyTimeout      = 5 * time.Second
)

// certificateUntil returns when the certificate expires.
func (c Config) certificateUntil() (time.Time, error) {
	pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return time.Time{}, err
	}
	return pair.Leaf.NotAfter, nil
}

// unsafeStores lists settings of the stores themselves that lose data or slow them down.
func (c Config) unsafeStores(s storage.Survey) []string {
	var found []string
	for _, setting := range s.Forgetful {
		found = append(found, fmt.Sprintf("PostgreSQL has %s=off: a power cut takes writes that were acknowledged", setting))
	}
	apart := func(who string, by time.Duration) {
		if by.Abs() > clockWarning {
			found = append(found, fmt.Sprintf("the clock of %s is %v apart from this process's: keep time on both, such as by chrony", who, by.Round(time.Millisecond)))
		}
	}
	apart("PostgreSQL", s.SQLAhead)
	need := max(c.InboxCap, c.OutboxCap)
	need += need/10 + 32
	for _, m := range s.Masters {
		if m.HidesIncarnation {
			found = append(found, fmt.Sprintf("Redis %s cannot be protected against a rollback: %v", m.Addr, storage.ErrHidesIncarnation))
		}
		if m.Eviction != "" && m.Eviction != "noeviction" {
			found = append(found, fmt.Sprintf("Redis %s has maxmemory-policy %s: it must be noeviction, or feeds and jobs' entries vanish one by one", m.Addr, m.Eviction))
		}
		if m.Listpack != 0 && m.Listpack < need {
			found = append(found, fmt.Sprintf("Redis %s has zset-max-listpack-entries %d: with %d and more, timelines take a sixth of the memory", m.Addr, m.Listpack, need))
		}
		apart("Redis "+m.Addr, m.Ahead)
	}
	return found
}

// exposed reports whether the configuration serves more than the users of this machine.
func (c Config) exposed() bool {
	host, _, _ := net.SplitHostPort(c.Addr) // Validate has checked it
	ip := net.ParseIP(host)
	return c.Production || host != "localhost" && (ip == nil || !ip.IsLoopback())
}

// warn logs what is unsafe if the process serves more than the users of this machine. The process starts even
// if the stores do not tell their settings.
func (p *process) warn(ctx context.Context) error {
	if !p.config.exposed() {
		return nil
	}
	found := p.config.Unsafe()
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	survey, err := p.Stores.Survey(ctx)
	if err != nil {
		p.log.WarnContext(ctx, "the stores' settings are not known", "error", err)
	}
	for _, what := range append(found, p.config.unsafeStores(survey)...) {
		p.log.WarnContext(ctx, "unsafe for production", "what", what)
	}
	return nil
}

// Check prints what the settings would run, and what is unsafe for production. If the stores are
// servers, it asks them too. It returns the number of unsafe items. Errors: a setting is not
// allowed; a store does not answer.
func Check(ctx context.Context, c Config, console Console) (unsafe int, err error) {
	if err := c.Validate(); err != nil {
		return 0, err
	}
	c.describe(console.Out)
	found := c.Unsafe()
	if c.DatabaseURL != "" || c.RedisURL != "" {
		b, err := Open(ctx, c, console, Beside)
		if err != nil {
			return len(found), err
		}
		survey, err := b.Stores.Survey(ctx)
		found = append(found, c.unsafeStores(survey)...)
		if err := errors.Join(err, b.Close()); err != nil {
			return len(found), err
		}
	}
	if len(found) == 0 {
		fmt.Fprintln(console.Out, "\nNothing here is unsafe for production.")
		return 0, nil
	}
	fmt.Fprintln(console.Out, "\nUnsafe for production:")
	for _, what := range found {
		fmt.Fprintln(console.Out, "  -", what)
	}
	return len(found), nil
}

// describe prints what the settings would run.
func (c Config) describe(out io.Writer) {
	sql, rdb := c.storage().Places()
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
	}
	ways := "'tideline serve', or any number of 'tideline server' and 'tideline worker'"
	if c.RedisURL == "" {
		ways = "'tideline serve' alone, for its Redis is inside it"
	}
	admin := cmp.Or(c.AdminAddr, "nowhere of their own")
	fmt.Fprintf(out, "tideline %s\n\nWith these settings there can be %s.\n", ThisBuild(), ways)
	fmt.Fprintf(out, "  API        %s://%s\n  Operators  %s\n  SQL        %s\n  Redis      %s\n", scheme, c.Addr, admin, sql, rdb)
	traced := "nothing is traced"
	if c.TracesEndpoint != "" {
		traced = fmt.Sprintf("a share of %v of the operations, to %s", c.TracesShare, c.TracesEndpoint)
	}
	fmt.Fprintf(out, "  Traces     %s\n", traced)
	fmt.Fprintf(out, "  Timelines  inboxes of %d, authors with more than %d followers are pulled, kept for %v\n", c.InboxCap, c.PullAbove, c.ActiveFor)
	names, _ := ranking.Read(c.Rankings) // Validate has checked it
	fmt.Fprintf(out, "  Rankings   %s\n", strings.Join(append([]string{ranking.Hot}, slices.Sorted(maps.Keys(names))...), ", "))
}
