package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/home"
	"tideline/feed/identity"
	"tideline/feed/login"
	"tideline/feed/paging"
	"tideline/feed/ranking"
	"tideline/feed/session"
	"tideline/feed/webhook"
	"tideline/graph/exec"
	"tideline/internal/errs"
	"tideline/internal/trace"
	"tideline/queue"
	"tideline/server/limit"
	"tideline/server/transport"
	"tideline/storage"
	"tideline/timeline"
	"tideline/workers"
)

// Config has every setting of a Tideline process. Each field is a flag of the command line and an environment
// variable: TIDELINE_ and the flag's name in capitals. A secret can also be in a file, named by the variable
// with the suffix _FILE. The tags hold the defaults. Where another package has a default for a setting,
// it is the same.
type Config struct {
	Addr            string   `group:"Network" default:"127.0.0.1:8080" help:"Address to serve the app, the API and GraphiQL on, as host:port."`
	AdminAddr       string   `group:"Network" placeholder:"HOST:PORT" help:"Address of its own for operators, without TLS: /livez, /readyz, /metrics and /debug/pprof. With it no other address answers /metrics. Keep it private. Default: none; /metrics is at --addr then."`
	AdminHosts      []string `group:"Network" placeholder:"HOST" help:"Additional host names that --admin-addr and --worker-addr accept. IP addresses, localhost, the machine's name and the configured host are always accepted. Default: none."`
	AllowedOrigins  []string `group:"Network" placeholder:"ORIGIN" help:"Other sites whose pages may use the API, such as https://app.example.com, or * for all. Default: none."`
	TrustedProxies  []string `group:"Network" placeholder:"CIDR" help:"Networks of reverse proxies that are trusted to report a client's address, such as 10.0.0.0/8. Default: none."`
	ProxyHeader     string   `group:"Network" enum:"x-forwarded-for,forwarded" default:"x-forwarded-for" help:"The header in which they report it: x-forwarded-for or forwarded."`
	TLSCert         string   `group:"Network" name:"tls-cert" placeholder:"FILE" help:"Certificate chain in PEM; with it the server speaks TLS. Read at start."`
	TLSKey          string   `group:"Network" name:"tls-key" placeholder:"FILE" help:"Private key of the certificate in PEM."`
	GraphiQL        string   `group:"Network" name:"graphiql" enum:"on,off" default:"on" help:"Serve the API's explorer at /graphiql: on or off."`
	Metrics         string   `group:"Network" enum:"on,off" default:"on" help:"Serve Prometheus metrics at /metrics, of --admin-addr where there is one: on or off."`
	CompressHTTP    string   `group:"Network" name:"compress-http" enum:"on,off" default:"on" help:"Send answers of 1 KB and more as gzip to clients that accept it: on or off. A page of 20 posts, 9 KB, becomes less than half as long for 37 µs of processor time."`
	CompressSockets string   `group:"Network" name:"compress-sockets" enum:"on,off" default:"off" help:"Agree to permessage-deflate on WebSockets: on or off. Messages of 1 KB and more are compressed then: an event of 2.3 KB becomes half as long, for 31 µs of processor time instead of 3 for each subscriber."`
	Production      bool     `group:"Network" help:"Serve strangers: no GraphiQL, no introspection, no /schema.graphql, no suggestions in errors."`

	RequestTimeout   time.Duration `group:"Limits of a request" default:"2s" help:"Longest time that a query or mutation may take, 100ms to 5m. Sign-ups and log-ins have at least 20s."`
	MaxBody          int           `group:"Limits of a request" default:"1048576" help:"Bytes of a request's body, 1024 to 67108864."`
	MaxDocument      int           `group:"Limits of a request" default:"32768" help:"Bytes of a GraphQL document, 256 to 1048576."`
	MaxTokens        int           `group:"Limits of a request" default:"2000" help:"Tokens of a document, 10 to 100000."`
	MaxDepth         int           `group:"Limits of a request" default:"15" help:"Levels of nested fields, 1 to 100."`
	MaxAliases       int           `group:"Limits of a request" default:"30" help:"Aliases in a document, 1 to 1000."`
	MaxDirectives    int           `group:"Limits of a request" default:"50" help:"Directives in a document, 1 to 1000."`
	MaxCost          int           `group:"Limits of a request" default:"10000" help:"Cost of an operation: the fields that it may produce by the page sizes it asks for, and the price of what it reads beyond that; 100 to 1000000."`
	MaxText          int           `group:"Limits of a request" default:"${max_text}" help:"Characters of a post's text, 1 to ${most_max_text}."`
	MaxPage          int           `group:"Limits of a request" default:"${max_page}" help:"Entries of a page, ${page} to ${most_inbox_cap}; also ids looked up at once. --max-cost counts every one of them, with all its fields."`
	MaxErrors        int           `group:"Limits of a request" default:"10" help:"Errors in one answer, 1 to 1000."`
	PersistedCache   int           `group:"Limits of a request" default:"8388608" help:"Bytes of documents that clients may register by their hash (automatic persisted queries), 0 to 1073741824; 0: none."`
	TrustedDocuments string        `group:"Limits of a request" placeholder:"FILE" help:"Execute these documents only, and those of the app: a JSON object of SHA-256 and document. Default: any document."`

	RateLimit                  string        `group:"Limits of a client" enum:"on,off" default:"on" help:"All limits of this group except --max-sockets, for every user and address: on or off."`
	MaxSockets                 int           `group:"Limits of a client" default:"20000" help:"WebSocket connections open at once in one process, 1 to 1000000."`
	MaxSocketsPerUser          int           `group:"Limits of a client" default:"50" help:"The same for one user, 1 to 1000000."`
	MaxSocketsPerAddress       int           `group:"Limits of a client" default:"500" help:"The same for one address, 1 to 1000000."`
	MaxSubscriptionsPerUser    int           `group:"Limits of a client" default:"200" help:"Subscriptions of one user at once in one process, 1 to 1000000."`
	MaxSubscriptionsPerAddress int           `group:"Limits of a client" default:"2000" help:"The same for one address, 1 to 1000000."`
	RateAccounts               int           `group:"Limits of a client" default:"30" help:"Sign-ups and log-ins a minute from one address in the long run, twice as many at once; 1 to 60000."`
	RateCredentials            int           `group:"Limits of a client" default:"300" help:"Wrong sessions, tokens and API keys a minute from one address in the long run, twice as many at once; 1 to 60000."`
	RateMutations              int           `group:"Limits of a client" default:"600" help:"Other mutations a minute of one user, a fifth of them at once; 1 to 60000."`
	RateCost                   int           `group:"Limits of a client" default:"600000" help:"Cost a minute of one user's operations, as of --max-cost and at least 100 each, a third of it at once; 1000 to 10000000."`
	RateKeyMutations           int           `group:"Limits of a client" default:"30000" help:"Mutations a minute by one API key, sign-ups and log-ins among them, whomever it acts for; a fifth of them at once; 1 to 60000."`
	RateKeyCost                int           `group:"Limits of a client" default:"10000000" help:"Cost a minute by one API key, as of --max-cost, a third of it at once; 1000 to 60000000."`
	NewAccountFor              time.Duration `group:"Limits of a client" default:"0s" help:"How long an account is new, 0s to 2160h; a new one has the rate of --rate-new-account. 0s: none is new."`
	RateNewAccount             int           `group:"Limits of a client" default:"60" help:"Mutations an hour of a new account, a fifth of them at once, whatever --rate-mutations allows; 1 to 60000."`

	Issuers     string   `group:"Accounts" placeholder:"FILE" help:"Issuers whose tokens (JWT) sign your own users in: a file with a JSON array of them, or the array itself. See docs/integrate/issuers.md. Default: none."`
	OwnAccounts string   `group:"Accounts" enum:"on,off" default:"on" help:"Let people log in with a password: on or off."`
	SignUp      string   `group:"Accounts" enum:"on,off" default:"on" help:"Let people make accounts with a password: on or off."`
	AvatarHosts []string `group:"Accounts" placeholder:"HOST" help:"Hosts whose pictures profiles may have, such as img.example.org or *.example.org, or * for any. A picture's host learns the address of everybody who views it. Default: none, no pictures."`
	App         string   `group:"Accounts" enum:"on,off" default:"on" help:"Serve the app at /: on or off."`

	DataDir          string `group:"Storage" default:"tideline-data" help:"Directory of the SQLite file and all other durable data; created if missing."`
	DatabaseURL      string `group:"Storage" name:"database-url" secret:"" placeholder:"URL" help:"PostgreSQL, as postgres://user:password@host/name; or in the file that TIDELINE_DATABASE_URL_FILE names. Default: a SQLite file in the data directory."`
	SQLiteSync       string `group:"Storage" name:"sqlite-sync" enum:"full,normal" default:"full" help:"When SQLite answers a write: full, when the disk has it; normal, sooner, and a power cut takes the last writes."`
	RedisURL         string `group:"Storage" name:"redis-url" secret:"" placeholder:"URL" help:"Redis, as redis://host:6379; nodes of a Redis Cluster separated by commas; Sentinels of a master with ?master_name=NAME; or in the file that TIDELINE_REDIS_URL_FILE names. Default: one inside the process, which other processes cannot share."`
	RedisIncarnation string `group:"Storage" name:"redis-incarnation" enum:"required,optional" default:"required" help:"Whether Redis must tell which incarnation of its data it has (master_replid in INFO replication), which shows whether Redis was rolled back: required or optional. With optional, feeds of a Redis that hides it and was rolled back lack posts until they are built again."`
	Migrate          string `group:"Storage" enum:"on,off" default:"on" help:"Bring the database's schema up to date at start: on or off."`

	InboxCap   int           `group:"Timelines" default:"${inbox_cap}" help:"Posts kept ready in each active user's timeline, ${least_inbox_cap} to ${most_inbox_cap}. Older ones are read from SQL."`
	OutboxCap  int           `group:"Timelines" default:"${outbox_cap}" help:"Posts kept ready of each author, ${least_outbox_cap} to ${most_outbox_cap}."`
	PullAbove  int           `group:"Timelines" default:"${pull_above}" help:"Authors with more followers are not pushed to timelines; readers fetch their posts instead. -1 to 1000000000; 0: nobody is pushed, -1: everybody."`
	ActiveFor  time.Duration `group:"Timelines" default:"${active_for}" help:"Keep a timeline ready for this long after it was last read, 1m to 8760h."`
	RankDecay  time.Duration `group:"Timelines" default:"${rank_decay}" help:"In the ranked timeline a post outweighs one with ten times its likes when it is this much newer, 1m to 8760h."`
	Rankings   string        `group:"Timelines" placeholder:"FILE" help:"Rankings beside hot by which a timeline may be ordered: a file with a JSON object of names and expressions, or the object itself. See docs/settings.md. Default: none."`
	SessionTTL time.Duration `group:"Timelines" name:"session-ttl" default:"${session_ttl}" help:"A log-in lasts this long, 1m to 8760h."`

	DeletionGrace time.Duration `group:"Timelines" default:"${deletion_grace}" help:"An account that its user deleted may be restored by a log-in for this long, 0s to 8760h."`

	SmallWorkers    int    `group:"Workers" default:"32" help:"Ordinary jobs that run at once in a worker, 1 to 1024."`
	LargeWorkers    int    `group:"Workers" default:"2" help:"Fan-outs to large audiences that run at once in a worker, 1 to 1024."`
	RelationWorkers int    `group:"Workers" default:"4" help:"Changes of relations, such as follows, that run at once in a worker, 1 to 1024."`
	FanOutPage      int    `group:"Workers" default:"${fan_out_page}" help:"Followers that a fan-out reads and pushes to at a time, 100 to 30000."`
	FanOutPart      int    `group:"Workers" default:"${fan_out_part}" help:"Followers of one part of a fan-out that is divided among workers, as it is above that, 1000 to 1000000000."`
	LargeAudience   int    `group:"Workers" default:"${large_audience}" help:"Followers from which the fan-outs of an author are large, 1 to 1000000000; a server decides it for each post that it takes."`
	WorkerAddr      string `group:"Workers" placeholder:"HOST:PORT" help:"Address where 'tideline worker' answers /livez, /readyz and, without --admin-addr, /metrics. Default: none."`

	WebhookNetworks []string `group:"Webhooks" placeholder:"CIDR" help:"Private networks to which webhooks may be sent, such as 10.1.0.0/16. Default: none, public addresses only."`
	WebhookHTTP     string   `group:"Webhooks" name:"webhook-http" enum:"on,off" default:"off" help:"Send webhooks to addresses without TLS, too: on or off."`

	LogFormat     string        `group:"Process" enum:"text,json" default:"text" help:"Form of the log on standard error: text or json."`
	LogLevel      string        `group:"Process" enum:"debug,info,warn,error" default:"info" help:"Least level that is logged: debug, info, warn or error."`
	ShutdownGrace time.Duration `group:"Process" default:"15s" help:"Time for work in hand when stopping, 1s to 10m."`

	TracesEndpoint string  `group:"Process" placeholder:"URL" help:"Collector to which traces are sent, by OTLP over HTTP, such as http://127.0.0.1:4318. Default: none, nothing is traced."`
	TracesShare    float64 `group:"Process" default:"0.01" help:"Share of the operations that are traced, 0 to 1; this process goes on with what others trace."`
	TracesHeaders  string  `group:"Process" secret:"" placeholder:"NAME=VALUE,..." help:"Headers for the collector, values escaped as in URLs; or in the file that TIDELINE_TRACES_HEADERS_FILE names. Default: none."`
}

// Vars returns the defaults and bounds that the tags of Config refer to as ${...}. The
// command line inserts them.
func Vars() map[string]string {
	vars := map[string]string{
		"active_for": short(timeline.DefaultActiveFor), "rank_decay": short(ranking.DefaultDecay), "session_ttl": short(session.DefaultTTL), "deletion_grace": short(login.DefaultGrace),
	}
	for name, value := range map[string]int{
		"max_text": feed.DefaultMaxText, "most_max_text": feed.MostMaxText,
		"page": paging.DefaultSize, "max_page": paging.DefaultMaxSize, "pull_above": home.DefaultPullAbove,
		"fan_out_page": workers.DefaultPageSize, "fan_out_part": workers.DefaultPartSize, "large_audience": feed.DefaultLargeAudience,
		"inbox_cap": timeline.DefaultInboxCap, "least_inbox_cap": timeline.MinInboxCap, "most_inbox_cap": timeline.MaxInboxCap,
		"outbox_cap": timeline.DefaultOutboxCap, "least_outbox_cap": timeline.MinOutboxCap, "most_outbox_cap": timeline.MaxOutboxCap,
	} {
		vars[name] = strconv.Itoa(value)
	}
	return vars
}

// short formats the duration without trailing zero units: 72h, not 72h0m0s.
func short(d time.Duration) string {
	text := strings.TrimSuffix(d.String(), "0s")
	if hours, whole := strings.CutSuffix(text, "h0m"); whole {
		return hours + "h"
	}
	return text
}

// EnvPrefix begins the name of every environment variable of Tideline, before an underscore.
const EnvPrefix = "TIDELINE"

// Validate names every setting that is not allowed, and says which values are. A setting that is passed on to
// another package has the bounds of that package.
func (c Config) Validate() error {
	var all []error
	bad := func(field string, value any, allowed string) {
		all = append(all, fmt.Errorf("%s is %v: it must be %s", field, value, allowed))
	}
	if !isAddress(c.Addr) {
		bad("Addr", quote(c.Addr), "host:port, such as 127.0.0.1:8080 or :8080")
	}
	if c.AdminAddr != "" && !isAddress(c.AdminAddr) {
		bad("AdminAddr", quote(c.AdminAddr), "host:port, such as 127.0.0.1:8090")
	}
	if c.WorkerAddr != "" && !isAddress(c.WorkerAddr) {
		bad("WorkerAddr", quote(c.WorkerAddr), "host:port, such as 127.0.0.1:8081")
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		bad("TLSCert", quote(c.TLSCert), "given together with --tls-key (TIDELINE_TLS_KEY), or neither")
	}
	for _, host := range c.AvatarHosts {
		if !account.IsHost(host) {
			bad("AvatarHosts", quote(host), "hosts, each as example.org, *.example.org, example.org:8443 or *")
		}
	}
	all = append(all,
		errs.Bound("MaxDocument", c.MaxDocument, 256, 1<<20),
		errs.Bound("MaxTokens", c.MaxTokens, 10, 100_000),
		errs.Bound("MaxDepth", c.MaxDepth, 1, 100),
		errs.Bound("MaxAliases", c.MaxAliases, 1, 1000),
		errs.Bound("MaxDirectives", c.MaxDirectives, 1, 1000),
		errs.Bound("MaxCost", c.MaxCost, 100, 1_000_000),
		errs.Bound("MaxText", c.MaxText, 1, feed.MostMaxText),
		errs.Bound("MaxErrors", c.MaxErrors, 1, 1000),
		errs.Bound("PullAbove", c.PullAbove, -1, 1_000_000_000),
		errs.Bound("SessionTTL", c.SessionTTL, session.MinTTL, session.MaxTTL),
		errs.Bound("DeletionGrace", c.DeletionGrace, 0, login.MaxGrace),
		errs.Bound("SmallWorkers", c.SmallWorkers, 1, queue.MaxWorkers),
		errs.Bound("LargeWorkers", c.LargeWorkers, 1, queue.MaxWorkers),
		errs.Bound("RelationWorkers", c.RelationWorkers, 1, queue.MaxWorkers),
		errs.Bound("FanOutPage", c.FanOutPage, 100, 30_000),
		errs.Bound("FanOutPart", c.FanOutPart, 1000, 1_000_000_000),
		errs.Bound("LargeAudience", c.LargeAudience, 1, 1_000_000_000),
		errs.Bound("ShutdownGrace", c.ShutdownGrace, time.Second, 10*time.Minute),
	)
	if _, err := identity.Read(c.Issuers); err != nil {
		for line := range strings.Lines(err.Error()) {
			all = append(all, fmt.Errorf("Issuers is not valid: %s", strings.TrimSpace(line)))
		}
	}
	if _, err := c.webhookReach(); err != nil {
		bad("WebhookNetworks", quote(strings.Join(c.WebhookNetworks, ",")), "networks such as 10.1.0.0/16")
	}
	policy, err := c.policy()
	if err != nil {
		all = append(all, fmt.Errorf("Rankings is not valid: %w", err))
	}
	all = append(all, c.timelines(nil).Validate(), policy.Validate(), c.transport().Validate(), c.limits(nil).Validate(), c.storage().Validate(), c.traces(Serve, nil).Validate())
	return asSettings(errors.Join(all...))
}

// asSettings rewrites an error in which each line begins with the name of a field, as in
// "MaxBody is 1: it must be …". It replaces the name by the field's flag and environment
// variable. Other lines stay as they are.
func asSettings(err error) error {
	if err == nil {
		return nil
	}
	var all []error
	for line := range strings.Lines(err.Error()) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if field, ok := reflect.TypeFor[Config]().FieldByName(name); ok {
			flag := flagOf(field)
			name = fmt.Sprintf("--%s (%s_%s)", flag, EnvPrefix, strings.ToUpper(strings.ReplaceAll(flag, "-", "_")))
		}
		all = append(all, errors.New(name+" "+rest))
	}
	return errors.Join(all...)
}

var wordStart = regexp.MustCompile(`(.)([A-Z])`)

// flagOf returns the name of a field's flag.
func flagOf(field reflect.StructField) string {
	if name := field.Tag.Get("name"); name != "" {
		return name
	}
	return strings.ToLower(wordStart.ReplaceAllString(field.Name, "$1-$2"))
}

// Database names the database of a valid configuration, without its password.
func (c Config) Database() string {
	sql, _ := c.storage().Places()
	return sql
}

func (c Config) storage() storage.Config {
	return storage.Config{DataDir: c.DataDir, DatabaseURL: c.DatabaseURL, SQLiteSync: c.SQLiteSync, RedisURL: c.RedisURL, RedisIncarnation: c.RedisIncarnation}
}

// traces returns the settings for traces.
func (c Config) traces(role Role, log *slog.Logger) trace.Config {
	return trace.Config{
		TracesEndpoint: c.TracesEndpoint, TracesShare: c.TracesShare, TracesHeaders: c.TracesHeaders,
		Version: ThisBuild().Version, Role: role.String(), Logger: log,
	}
}

// requestLimits returns the limits of one request.
func (c Config) requestLimits() exec.Limits {
	return exec.Limits{
		DocumentBytes: c.MaxDocument, Tokens: c.MaxTokens, Depth: c.MaxDepth, Aliases: c.MaxAliases,
		Directives: c.MaxDirectives, Errors: c.MaxErrors, Cost: c.MaxCost,
	}
}

// limits returns the limits of a client.
func (c Config) limits(log *slog.Logger) limit.Config {
	return limit.Config{
		Off:          c.RateLimit == "off",
		RateAccounts: c.RateAccounts, RateCredentials: c.RateCredentials, RateMutations: c.RateMutations, RateCost: c.RateCost, MaxCost: c.MaxCost,
		RateKeyMutations: c.RateKeyMutations, RateKeyCost: c.RateKeyCost,
		NewAccountFor: c.NewAccountFor, RateNewAccount: c.RateNewAccount,
		MaxSocketsPerUser: c.MaxSocketsPerUser, MaxSocketsPerAddress: c.MaxSocketsPerAddress,
		MaxSubscriptionsPerUser: c.MaxSubscriptionsPerUser, MaxSubscriptionsPerAddress: c.MaxSubscriptionsPerAddress,
		TrustedProxies: c.TrustedProxies, ProxyHeader: c.ProxyHeader, Logger: log,
	}
}

// transport returns the settings of the transports. The caller adds the parts that they work with.
func (c Config) transport() transport.Config {
	return transport.Config{
		RequestTimeout: c.RequestTimeout, MaxBody: c.MaxBody, MaxCost: c.MaxCost,
		PersistedCache: c.PersistedCache, TrustedDocuments: c.TrustedDocuments,
		MaxSockets: c.MaxSockets, AllowedOrigins: c.AllowedOrigins, Deflate: c.CompressSockets == "on",
	}
}

// policy returns how home timelines are kept. Error: the setting Rankings cannot be read.
func (c Config) policy() (home.Policy, error) {
	rankings, err := ranking.Read(c.Rankings)
	p := home.Policy{PullAbove: c.PullAbove, RankDecay: c.RankDecay, Rankings: rankings, MaxPage: c.MaxPage}
	switch c.PullAbove {
	case 0:
		p.PullAbove = home.AlwaysPull
	case -1:
		p.PullAbove = home.NeverPull
	}
	return p, err
}

// timelines returns how feeds are kept in Redis.
func (c Config) timelines(log *slog.Logger) timeline.Config {
	return timeline.Config{InboxCap: c.InboxCap, OutboxCap: c.OutboxCap, ActiveFor: c.ActiveFor, Reborn: func() {
		log.Warn("Redis was started again, or a replica took over: feeds are built again as they are read")
	}}
}

// webhookReach returns the addresses to which webhooks may be sent.
func (c Config) webhookReach() (r webhook.Reach, err error) {
	r.HTTP = c.WebhookHTTP == "on"
	for _, text := range c.WebhookNetworks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return r, err
		}
		r.Networks = append(r.Networks, network)
	}
	return r, nil
}

func (c Config) graphiql() bool { return c.GraphiQL == "on" && !c.Production }

func quote(s string) string { return fmt.Sprintf("%q", s) }

func isAddress(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	_, err = net.LookupPort("tcp", port)
	return err == nil
}
