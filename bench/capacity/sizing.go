package capacity

import (
	"fmt"
	"io"
	"math"
)

const (
	day  = 86_400.0 // seconds
	year = 365.0    // days
)

// Bounds that follow from Tideline's own code.
const (
	writerNumbers   = 32   // most servers, each with a lease of one number; see feed/ids
	sessionsEach    = 20   // connections of a process to PostgreSQL
	redisMostNodes  = 1000 // nodes for which Redis Cluster is designed
	mostToBreak     = 1e10 // users up to which limits are searched
	fixpointAtMost  = 100
	oneServer       = 1.0
	bytesOfGigabyte = 1e9
)

// Sizing describes the machines that a number of users needs. A figure is unknown if a constant that it depends on is unknown.
type Sizing struct {
	Assumptions Assumptions `json:"assumptions"`

	// Per second at the peak.
	Reads      float64 `json:"reads"`
	Posts      float64 `json:"posts"`
	Replies    float64 `json:"replies"`
	Reposts    float64 `json:"reposts"`
	Pushes     float64 `json:"pushes"`
	Deliveries float64 `json:"deliveries"`
	Connects   float64 `json:"connects"`

	// Processors in use at the peak, of servers, workers, PostgreSQL and Redis.
	Processors Work `json:"processors"`

	Servers Figure `json:"servers"` // machines
	Workers Figure `json:"workers"` // machines; unknown if workers run inside servers
	Masters Figure `json:"masters"` // of Redis

	RedisBytes Figure `json:"redisBytes"`
	SQLBytes   Figure `json:"sqlBytes"`
	SQLGrowth  Figure `json:"sqlBytesAYear"`
	SendBytes  Figure `json:"sendBytesASecond"`
	SocketRAM  Figure `json:"connectionBytes"` // of all servers together

	Largest Largest `json:"largest"`
}

// Largest describes one post of the most followed author.
type Largest struct {
	Pushes     float64 `json:"pushes"` // 0 if the author has more followers than PullAbove
	Deliveries float64 `json:"deliveries"`
	LookUps    float64 `json:"lookUps"`       // look-ups of recipients at servers
	LookUpTime Figure  `json:"lookUpSeconds"` // per Redis master
	ServerTime Figure  `json:"serverSeconds"` // processor time of all servers together
	WorkerTime Figure  `json:"workerSeconds"` // processor time for the pushes
}

// of returns f of the figures, or nil if one of them is unknown.
func of(f func(v []float64) float64, figures ...Figure) Figure {
	values := make([]float64, len(figures))
	for i, x := range figures {
		if x == nil {
			return nil
		}
		values[i] = *x
	}
	return new(f(values))
}

// Size computes what the assumptions need.
//
// The number of servers and their cost depend on each other: a server with at least one recipient of a post
// pays for the first delivery, and each recipient is looked up at each server. Size starts with one server
// and iterates until the number does not change, at most 100 times.
//
// Cost: a few microseconds.
func Size(c Constants, a Assumptions) Sizing {
	perSecond := func(aUserAndDay float64) float64 { return a.Users * aUserAndDay * a.Peak / day }
	s := Sizing{
		Assumptions: a, Reads: perSecond(a.Reads), Posts: perSecond(a.Posts), Replies: perSecond(a.Replies), Reposts: perSecond(a.Reposts),
		Connects: perSecond(a.Connects),
	}
	audience, connected := min(a.Followers, a.Users)*a.Active, min(a.Followers, a.Users)*a.Connected
	made := s.Posts + s.Replies + s.Reposts // all are pushed and delivered like posts
	s.Pushes, s.Deliveries = made*audience, made*connected
	reply, repost := c.Reply, c.Repost
	if s.Replies+s.Reposts == 0 { // the costs need not be known
		reply, repost = c.Post, c.Post
	}
	sockets := a.Users * a.Connected

	s.Servers = new(oneServer)
	for range fixpointAtMost {
		n := *s.Servers
		reached := reach(connected, n)
		s.Processors = Each(func(v []float64) float64 {
			page, unread, post, push, wake, delivery, connect, hold, idle, count := v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9]
			reply, repost := v[10], v[11]
			// A user who connects is new to the server, which has no cached number.
			pages := s.Reads*page + a.Counts*((s.Reads+s.Deliveries)*unread+s.Connects*count)
			posts := s.Posts*post + s.Replies*reply + s.Reposts*repost + s.Pushes*push + made*(reached*wake+(connected-reached)*delivery)
			return (pages + posts + s.Connects*connect + sockets*hold + idle) / 1e6
		}, c.Page, c.Unread, c.Post, c.Push, c.Wake, c.Delivery, c.Connect, c.Hold, c.Idle, c.Count, reply, repost)
		s.Processors.Server = of(func(v []float64) float64 { return v[0] + (n-1)*v[1]/1e6 }, s.Processors.Server, c.Idle.Server)
		s.Processors.Redis = of(func(v []float64) float64 {
			return v[0] + s.Pushes*(n-1)*v[1]/1e6
		}, s.Processors.Redis, orZero(c.LookUp, n == 1))
		next := of(func(v []float64) float64 {
			return max(oneServer, math.Ceil(v[0]/a.Busy/a.Cores), math.Ceil(sockets/a.Sockets))
		}, s.Processors.Server)
		if next == nil || *next == n {
			s.Servers = next
			break
		}
		s.Servers = next
	}
	s.Workers = of(func(v []float64) float64 { return max(1, math.Ceil(v[0]/a.Busy/a.Cores)) }, s.Processors.Worker)
	s.SocketRAM = of(func(v []float64) float64 { return sockets * v[0] }, c.Connection)
	s.SendBytes = of(func(v []float64) float64 { return s.Reads*v[0] + s.Deliveries*v[1] }, c.PageBytes, c.EventBytes)

	postsADay := a.Posts + a.Replies + a.Reposts
	posts := postsADay * a.Days
	s.RedisBytes = of(func(v []float64) float64 {
		inbox, outbox := a.InboxCap*v[0]+v[1]+v[2], a.OutboxCap*v[0] // an entry has the same size in both
		return a.Users * (a.Active*inbox + a.Pulled*outbox)
	}, c.InboxEntry, c.InboxRest, c.Active)
	s.Masters = of(func(v []float64) float64 {
		return max(1, math.Ceil(v[0]/(a.MasterGB*bytesOfGigabyte)), math.Ceil(v[1]/a.Busy))
	}, s.RedisBytes, s.Processors.Redis)
	aPost := of(func(v []float64) float64 { return v[0] + v[1] }, c.PostRow, c.ReceiptRow)
	s.SQLBytes = of(func(v []float64) float64 {
		return a.Users * (v[0] + v[1] + v[2] + a.Follows*v[3] + posts*v[4])
	}, c.UserRow, c.SessionRow, c.MarkerRow, c.FollowRow, aPost)
	s.SQLGrowth = of(func(v []float64) float64 { return a.Users * postsADay * year * v[0] }, aPost)
	s.Largest = largest(c, a, s.Servers, s.Masters)
	return s
}

// orZero returns 0 if the figure will be multiplied by 0 anyway.
func orZero(f Figure, zero bool) Figure {
	if zero {
		return new(0.0)
	}
	return f
}

// reach returns how many of n servers have at least one of the connected recipients, if these are spread
// at random: n - n(1-1/n)^recipients.
func reach(recipients, n float64) float64 {
	return min(recipients, n*(1-math.Pow(1-1/n, recipients)))
}

func largest(c Constants, a Assumptions, servers, masters Figure) Largest {
	followers := a.Users * a.Most
	l := Largest{Deliveries: followers * a.Connected}
	if followers <= a.PullAbove {
		l.Pushes = followers * a.Active
	}
	if servers == nil {
		return l
	}
	l.LookUps = followers * a.Active * *servers
	l.LookUpTime = of(func(v []float64) float64 { return l.LookUps * v[0] / v[1] / 1e6 }, c.LookUp, masters)
	reached := reach(l.Deliveries, *servers)
	l.ServerTime = of(func(v []float64) float64 {
		return (reached*v[0] + (l.Deliveries-reached)*v[1]) / 1e6
	}, c.Wake.Server, c.Delivery.Server)
	l.WorkerTime = of(func(v []float64) float64 { return l.Pushes * v[0] / 1e6 }, c.Push.Worker)
	return l
}

// Break is a limit that a growing number of users reaches.
type Break struct {
	What  string `json:"what"`
	Users Figure `json:"users"` // fewest users that exceed it; nil: none up to 10 thousand million, or a constant is unknown
	Then  string `json:"then"`
}

// Breaks returns the limits of resources that cannot be multiplied, in the order in which a growing number of
// users with the same habits reaches them. A resource of which there can be more, such as Redis masters up to
// the limit of a cluster, is not a limit.
func Breaks(c Constants, a Assumptions) []Break {
	at := func(passed func(Sizing) (bool, bool)) Figure {
		try := func(users float64) (bool, bool) {
			grown := a
			grown.Users = users
			return passed(Size(c, grown))
		}
		low, high := float64(MinUsers), float64(mostToBreak)
		if over, known := try(high); !over || !known {
			return nil
		}
		for high/low > 1.001 {
			middle := math.Sqrt(low * high)
			if over, _ := try(middle); over {
				high = middle
			} else {
				low = middle
			}
		}
		return new(high)
	}
	more := func(limit float64, figures func(Sizing) []Figure) func(Sizing) (bool, bool) {
		return func(s Sizing) (bool, bool) {
			sum := of(func(v []float64) (total float64) {
				for _, x := range v {
					total += x
				}
				return total
			}, figures(s)...)
			return sum != nil && *sum > limit, sum != nil
		}
	}
	breaks := []Break{
		{
			fmt.Sprintf("%.0f processors of PostgreSQL, of which there is one", a.SQLCores),
			at(more(a.SQLCores*a.Busy, func(s Sizing) []Figure { return []Figure{s.Processors.SQL} })),
			"read pages from replicas, then several databases, users shared out among them: neither exists",
		},
		{
			fmt.Sprintf("%d servers, for each makes ids by a number of its own", writerNumbers),
			at(more(writerNumbers, func(s Sizing) []Figure { return []Figure{s.Servers} })),
			"larger machines and more sockets each, then more bits for the writer in an id",
		},
		{
			fmt.Sprintf("%.0f connections to PostgreSQL, %d a process", a.SQLSessions, sessionsEach),
			at(more(a.SQLSessions/sessionsEach, func(s Sizing) []Figure { return []Figure{s.Servers, orZero(s.Workers, c.Post.Worker == nil)} })),
			"larger machines for servers and workers, or a pooler before PostgreSQL",
		},
		{
			fmt.Sprintf("%d masters of a Redis Cluster", redisMostNodes),
			at(more(redisMostNodes, func(s Sizing) []Figure { return []Figure{s.Masters} })),
			"more memory a master, shorter inboxes, a shorter life of them",
		},
	}
	// An insertion sort: known limits first, by their number of users.
	for i := range breaks {
		for j := i; j > 0 && earlier(breaks[j].Users, breaks[j-1].Users); j-- {
			breaks[j], breaks[j-1] = breaks[j-1], breaks[j]
		}
	}
	return breaks
}

func earlier(a, b Figure) bool { return a != nil && (b == nil || *a < *b) }

// Print writes the sizing and the limits as Markdown tables.
func (s *Sizing) Print(out io.Writer, breaks []Break) error {
	a := s.Assumptions
	fmt.Fprintf(out, "%s users, %s active, %s connected at the peak\n\n| at the peak | |\n| --- | --- |\n",
		count(a.Users), count(a.Users*a.Active), count(a.Users*a.Connected))
	line := func(name, value string) { fmt.Fprintf(out, "| %s | %s |\n", name, value) }
	line("pages read a second", count(s.Reads))
	line("posts a second", count(s.Posts))
	if s.Replies+s.Reposts > 0 {
		line("replies a second", count(s.Replies))
		line("reposts a second", count(s.Reposts))
	}
	line("pushes a second", count(s.Pushes))
	line("live deliveries a second", count(s.Deliveries))
	line("connections opened a second", count(s.Connects))
	line("processors in use: servers", counted(s.Processors.Server))
	line("processors in use: workers", counted(s.Processors.Worker))
	line("processors in use: PostgreSQL", counted(s.Processors.SQL))
	line("processors in use: Redis", counted(s.Processors.Redis))
	line(fmt.Sprintf("servers of %.0f processors, %.0f %% in use", a.Cores, 100*a.Busy), whole(s.Servers))
	line("workers, the same", whole(s.Workers))
	line(fmt.Sprintf("Redis masters of %s GB", digits(a.MasterGB)), whole(s.Masters))
	line("memory of Redis, without replicas", size(s.RedisBytes))
	line("memory of connections, all servers", size(s.SocketRAM))
	line("SQL on disk", size(s.SQLBytes))
	line("SQL grows a year", size(s.SQLGrowth))
	line("sent a second, not compressed", size(s.SendBytes))
	l := s.Largest
	line("post of the most followed: pushes", count(l.Pushes))
	line("post of the most followed: live deliveries", count(l.Deliveries))
	line("post of the most followed: server processor seconds", counted(l.ServerTime))
	line("post of the most followed: seconds of each Redis master for look-ups", counted(l.LookUpTime))
	fmt.Fprintln(out, "\n| what breaks, in this order | at users | then |\n| --- | --- | --- |")
	for _, b := range breaks {
		at := "not up to 10,000,000,000, or not known"
		if b.Users != nil {
			at = count(*b.Users)
		}
		fmt.Fprintf(out, "| %s | %s | %s |\n", b.What, at, b.Then)
	}
	_, err := fmt.Fprintln(out)
	return err
}

func whole(f Figure) string {
	if f == nil {
		return "not known"
	}
	return fmt.Sprintf("%.0f", *f)
}

func counted(f Figure) string {
	if f == nil {
		return "not known"
	}
	return count(*f)
}

// count formats a number with thousands separators, rounded to three digits if it is 10,000 or more.
func count(v float64) string {
	if v < 1000 {
		return digits(v)
	}
	if magnitude := math.Pow(10, math.Floor(math.Log10(v))-2); v >= 10_000 {
		v = math.Round(v/magnitude) * magnitude
	}
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// size formats bytes with units of powers of 1000.
func size(f Figure) string {
	if f == nil {
		return "not known"
	}
	v, units := *f, []string{"bytes", "KB", "MB", "GB", "TB", "PB"}
	i := 0
	for ; v >= 1000 && i < len(units)-1; i++ {
		v /= 1000
	}
	return digits(v) + " " + units[i]
}
