package server

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/graph/exec"
	"tideline/storage"
)

// Config is every setting of a Tideline process, as the command line has it:
// each field is a flag, and the environment variable TIDELINE_ with the flag's
// name in capitals.
type Config struct {
	Addr           string   `group:"Network" default:"127.0.0.1:8080" help:"Address to serve the app, the API and GraphiQL on, as host:port."`
	AllowedOrigins []string `group:"Network" placeholder:"ORIGIN" help:"Other sites whose pages may use the API, such as https://app.example.com, or * for all. Default: none."`
	TrustedProxies []string `group:"Network" placeholder:"CIDR" help:"Networks of reverse proxies whose word about a client's address is taken, such as 10.0.0.0/8. Default: none."`
	ProxyHeader    string   `group:"Network" enum:"x-forwarded-for,forwarded" default:"x-forwarded-for" help:"The header in which they give it: x-forwarded-for or forwarded."`
	TLSCert        string   `group:"Network" name:"tls-cert" placeholder:"FILE" help:"Certificate chain in PEM; with it the server speaks TLS. Read at start."`
	TLSKey         string   `group:"Network" name:"tls-key" placeholder:"FILE" help:"Private key of the certificate in PEM."`
	GraphiQL       string   `group:"Network" name:"graphiql" enum:"on,off" default:"on" help:"Serve the API's explorer at /graphiql: on or off."`
	Metrics        string   `group:"Network" enum:"on,off" default:"on" help:"Serve Prometheus metrics at /metrics: on or off."`
	Production     bool     `group:"Network" help:"Serve strangers: no GraphiQL, no introspection, no /schema.graphql, no suggestions in errors."`

	RequestTimeout   time.Duration `group:"Limits of a request" default:"2s" help:"Longest time that a query or mutation may take, 100ms to 5m. Sign-ups and log-ins have at least 20s."`
	MaxBody          int           `group:"Limits of a request" default:"1048576" help:"Bytes of a request's body, 1024 to 67108864."`
	MaxDocument      int           `group:"Limits of a request" default:"32768" help:"Bytes of a GraphQL document, 256 to 1048576."`
	MaxTokens        int           `group:"Limits of a request" default:"2000" help:"Tokens of a document, 10 to 100000."`
	MaxDepth         int           `group:"Limits of a request" default:"15" help:"Levels of nested fields, 1 to 100."`
	MaxAliases       int           `group:"Limits of a request" default:"30" help:"Aliases in a document, 1 to 1000."`
	MaxDirectives    int           `group:"Limits of a request" default:"50" help:"Directives in a document, 1 to 1000."`
	MaxCost          int           `group:"Limits of a request" default:"10000" help:"Fields that an operation may produce by the page sizes it asks for, 100 to 1000000."`
	MaxText          int           `group:"Limits of a request" default:"5000" help:"Characters of a post's text, 1 to 50000."`
	MaxPage          int           `group:"Limits of a request" default:"100" help:"Entries of a page, 20 to 1000; also ids looked up at once. --max-cost counts every one of them, with all its fields."`
	MaxErrors        int           `group:"Limits of a request" default:"10" help:"Errors in one answer, 1 to 1000."`
	PersistedCache   int           `group:"Limits of a request" default:"8388608" help:"Bytes of documents that clients may register by their hash (automatic persisted queries), 0 to 1073741824; 0: none."`
	TrustedDocuments string        `group:"Limits of a request" placeholder:"FILE" help:"Execute these documents only: a JSON object of hash and document. The app's own must be among them. Default: any document."`

	RateLimit                  string `group:"Limits of a client" enum:"on,off" default:"on" help:"All limits of this group but the first, for every user and address: on or off."`
	MaxSockets                 int    `group:"Limits of a client" default:"20000" help:"WebSocket connections open at once in one process, 1 to 1000000."`
	MaxSocketsPerUser          int    `group:"Limits of a client" default:"50" help:"The same for one user, 1 to 1000000."`
	MaxSocketsPerAddress       int    `group:"Limits of a client" default:"500" help:"The same for one address, 1 to 1000000."`
	MaxSubscriptionsPerUser    int    `group:"Limits of a client" default:"200" help:"Subscriptions of one user at once in one process, 1 to 1000000."`
	MaxSubscriptionsPerAddress int    `group:"Limits of a client" default:"2000" help:"The same for one address, 1 to 1000000."`
	RateAccounts               int    `group:"Limits of a client" default:"30" help:"Sign-ups and log-ins a minute from one address in the long run, twice as many at once; 1 to 60000."`
	RateMutations              int    `group:"Limits of a client" default:"600" help:"Other mutations a minute of one user, a fifth of them at once; 1 to 60000."`
	RateCost                   int    `group:"Limits of a client" default:"600000" help:"Cost a minute of one user's operations, as of --max-cost and at least 100 each, a third of it at once; 1000 to 10000000."`

	DataDir     string `group:"Storage" default:"tideline-data" help:"Directory of the SQLite file and whatever else must last, made when missing."`
	DatabaseURL string `group:"Storage" name:"database-url" placeholder:"URL" help:"PostgreSQL, as postgres://user:password@host/name. Default: a SQLite file in the data directory."`
	RedisURL    string `group:"Storage" name:"redis-url" placeholder:"URL" help:"Redis, as redis://host:6379; nodes of a Redis Cluster separated by commas. Default: one inside the process, which other processes cannot share."`
	Migrate     string `group:"Storage" enum:"on,off" default:"on" help:"Bring the database's schema up to date at start: on or off."`

	InboxCap   int           `group:"Timelines" default:"500" help:"Posts kept ready in each active user's timeline, 300 to 1000. Older ones are read from SQL."`
	OutboxCap  int           `group:"Timelines" default:"1000" help:"Posts kept ready of each author, 100 to 10000."`
	PullAbove  int           `group:"Timelines" default:"50000" help:"Authors with more followers are not pushed to timelines; readers fetch their posts instead. -1 to 1000000000; 0: nobody is pushed, -1: everybody."`
	ActiveFor  time.Duration `group:"Timelines" default:"72h" help:"Keep a timeline ready for this long after it was last read, 1m to 8760h."`
	RankDecay  time.Duration `group:"Timelines" default:"12h30m" help:"In the ranked timeline a post outweighs one with ten times its likes when it is this much newer, 1m to 8760h."`
	SessionTTL time.Duration `group:"Timelines" name:"session-ttl" default:"720h" help:"A log-in lasts this long, 1m to 8760h."`

	SmallWorkers int    `group:"Workers" default:"8" help:"Ordinary jobs that run at once in a worker, 1 to 1024."`
	LargeWorkers int    `group:"Workers" default:"2" help:"Fan-outs to large audiences that run at once in a worker, 1 to 1024."`
	WorkerAddr   string `group:"Workers" placeholder:"HOST:PORT" help:"Address where 'tideline worker' answers /livez, /readyz and /metrics. Default: none."`

	LogFormat     string        `group:"Process" enum:"text,json" default:"text" help:"Form of the log on standard error: text or json."`
	LogLevel      string        `group:"Process" enum:"debug,info,warn,error" default:"info" help:"Least level that is logged: debug, info, warn or error."`
	ShutdownGrace time.Duration `group:"Process" default:"15s" help:"Time for work in hand when stopping, 1s to 10m."`
}

// EnvPrefix begins the name of every environment variable that is ours.
const EnvPrefix = "TIDELINE"

// Validate names every setting that is not allowed, and what is.
func (c Config) Validate() error {
	var errs []error
	bad := func(flag string, value any, allowed string) {
		env := EnvPrefix + "_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
		errs = append(errs, fmt.Errorf("--%s (%s) is %v: it must be %s", flag, env, value, allowed))
	}
	number := func(flag string, value, least, most int) {
		if value < least || value > most {
			bad(flag, value, fmt.Sprintf("%d to %d", least, most))
		}
	}
	duration := func(flag string, value, least, most time.Duration) {
		if value < least || value > most {
			bad(flag, value, fmt.Sprintf("%v to %v", least, most))
		}
	}
	if !isAddress(c.Addr) {
		bad("addr", quote(c.Addr), "host:port, such as 127.0.0.1:8080 or :8080")
	}
	if c.WorkerAddr != "" && !isAddress(c.WorkerAddr) {
		bad("worker-addr", quote(c.WorkerAddr), "host:port, such as 127.0.0.1:8081")
	}
	for _, origin := range c.AllowedOrigins {
		if origin != "*" && !isOrigin(origin) {
			bad("allowed-origins", quote(origin), "an origin without a path, such as https://app.example.com, or *")
		}
	}
	for _, network := range c.TrustedProxies {
		if _, err := parseNetwork(network); err != nil {
			bad("trusted-proxies", quote(network), "an address or a network, such as 10.0.0.0/8")
		}
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		bad("tls-cert", quote(c.TLSCert), "given together with --tls-key (TIDELINE_TLS_KEY), or neither")
	}
	duration("request-timeout", c.RequestTimeout, 100*time.Millisecond, 5*time.Minute)
	number("max-body", c.MaxBody, 1<<10, 64<<20)
	number("max-document", c.MaxDocument, 256, 1<<20)
	number("max-tokens", c.MaxTokens, 10, 100_000)
	number("max-depth", c.MaxDepth, 1, 100)
	number("max-aliases", c.MaxAliases, 1, 1000)
	number("max-directives", c.MaxDirectives, 1, 1000)
	number("max-cost", c.MaxCost, 100, 1_000_000)
	// The longest text fits into a body of the default size however it is escaped.
	number("max-text", c.MaxText, 1, 50_000)
	// From the page that is read where no size is asked for to the whole of the largest inbox.
	number("max-page", c.MaxPage, paging.DefaultSize, 1000)
	number("max-errors", c.MaxErrors, 1, 1000)
	number("persisted-cache", c.PersistedCache, 0, 1<<30)
	number("max-sockets", c.MaxSockets, 1, 1_000_000)
	number("max-sockets-per-user", c.MaxSocketsPerUser, 1, 1_000_000)
	number("max-sockets-per-address", c.MaxSocketsPerAddress, 1, 1_000_000)
	number("max-subscriptions-per-user", c.MaxSubscriptionsPerUser, 1, 1_000_000)
	number("max-subscriptions-per-address", c.MaxSubscriptionsPerAddress, 1, 1_000_000)
	number("rate-accounts", c.RateAccounts, 1, 60_000)
	number("rate-mutations", c.RateMutations, 1, 60_000)
	number("rate-cost", c.RateCost, 1000, 10_000_000)
	number("inbox-cap", c.InboxCap, 300, 1000)
	number("outbox-cap", c.OutboxCap, 100, 10_000)
	number("pull-above", c.PullAbove, -1, 1_000_000_000)
	duration("active-for", c.ActiveFor, time.Minute, 8760*time.Hour)
	duration("rank-decay", c.RankDecay, time.Minute, 8760*time.Hour)
	duration("session-ttl", c.SessionTTL, time.Minute, 8760*time.Hour)
	number("small-workers", c.SmallWorkers, 1, 1024)
	number("large-workers", c.LargeWorkers, 1, 1024)
	duration("shutdown-grace", c.ShutdownGrace, time.Second, 10*time.Minute)
	if err := c.storage().Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c Config) storage() storage.Config {
	return storage.Config{DataDir: c.DataDir, DatabaseURL: c.DatabaseURL, RedisURL: c.RedisURL}
}

// limits are those of one request, as package exec has them.
func (c Config) limits() exec.Limits {
	return exec.Limits{
		DocumentBytes: c.MaxDocument, Tokens: c.MaxTokens, Depth: c.MaxDepth, Aliases: c.MaxAliases,
		Directives: c.MaxDirectives, Errors: c.MaxErrors, Cost: c.MaxCost,
	}
}

// rates are those of RateLimit. The dearest operation is within every burst.
func (c Config) rates() rates {
	return rates{
		accounts:  rate{2 * c.RateAccounts, c.RateAccounts},
		mutations: rate{max(c.RateMutations/5, 1), c.RateMutations},
		cost:      rate{max(c.RateCost/3, c.MaxCost, leastCost), c.RateCost},
	}
}

func (c Config) quotas() quotas {
	if c.RateLimit == "off" {
		return quotas{}
	}
	return quotas{
		userSockets: newQuota(c.MaxSocketsPerUser), addressSockets: newQuota(c.MaxSocketsPerAddress),
		userSubscriptions: newQuota(c.MaxSubscriptionsPerUser), addressSubscriptions: newQuota(c.MaxSubscriptionsPerAddress),
	}
}

// proxies must be called on a valid configuration.
func (c Config) proxies() proxies {
	p := proxies{header: c.ProxyHeader}
	for _, text := range c.TrustedProxies {
		if network, err := parseNetwork(text); err == nil {
			p.networks = append(p.networks, network.Masked())
		}
	}
	return p
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

func isAddress(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	_, err = net.LookupPort("tcp", port)
	return err == nil
}

func isOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && origin == u.Scheme+"://"+u.Host
}

// Kubernetes gives every pod such variables for each service, and a service
// called tideline gives ours a prefix that looks like a setting's.
var serviceLink = regexp.MustCompile(`^TIDELINE_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT|PORT)(_[A-Z0-9_]+)?$`)

// policy is how home timelines are kept, as package home has it.
func (c Config) policy() home.Policy {
	p := home.Policy{PullAbove: c.PullAbove, RankDecay: c.RankDecay, MaxPage: c.MaxPage}
	switch c.PullAbove {
	case 0:
		p.PullAbove = home.AlwaysPull
	case -1:
		p.PullAbove = home.NeverPull
	}
	return p
}

// CheckEnv names variables of the environment (as in os.Environ) that begin
// as ours do but are not among the known ones: a misspelt setting would
// otherwise be ignored in silence. It is no reason not to start: what sets them may
// know a newer version.
func CheckEnv(environ, known []string) error {
	var errs []error
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, EnvPrefix+"_") || slices.Contains(known, name) || serviceLink.MatchString(name) {
			continue
		}
		err := fmt.Errorf("the environment variable %s is no setting; see tideline --help", name)
		if near := nearest(name, known); near != "" {
			err = fmt.Errorf("the environment variable %s is no setting; did you mean %s?", name, near)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// nearest is the name that takes the fewest edits, "" when even it takes many.
func nearest(name string, known []string) string {
	best, distance := "", 5
	for _, candidate := range known {
		if d := edits(name, candidate); d < distance {
			best, distance = candidate, d
		}
	}
	return best
}

// edits is the Levenshtein distance of two names in ASCII.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
