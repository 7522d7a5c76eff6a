package capacity

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func work(server, worker, sql, redis float64) Work { return Work{&server, &worker, &sql, &redis} }

// simple returns constants with round figures.
func simple() Constants {
	return Constants{
		Idle: work(0, 0, 0, 0), Hold: work(2, 0, 0, 0), Unread: work(40, 0, 80, 20), Count: work(60, 0, 90, 30), Page: work(100, 0, 200, 10), Post: work(1000, 500, 2000, 100), Reply: work(1100, 500, 2500, 100), Repost: work(900, 500, 1500, 100), Push: work(0, 5, 1, 2),
		Wake: work(50, 0, 20, 10), Delivery: work(10, 0, 5, 1), Connect: work(1000, 0, 500, 100),
		LookUp: new(0.5), Connection: new(30_000.0), PageBytes: new(8000.0), EventBytes: new(500.0),
		InboxEntry: new(100.0), InboxRest: new(2000.0), Active: new(30.0),
		UserRow: new(400.0), SessionRow: new(300.0), MarkerRow: new(100.0), FollowRow: new(200.0), PostRow: new(300.0), ReceiptRow: new(100.0),
	}
}

func assume(t *testing.T, users float64, named map[string]float64) Assumptions {
	a, err := Assume(users, named)
	require.NoError(t, err)
	return a
}

// A day has 86,400 seconds. With 864,000 users and no peak, an action that each user takes once
// a day happens 10 times a second.
func TestSizeIsWorkedOutByHand(t *testing.T) {
	t.Parallel()
	a := assume(t, 864_000, map[string]float64{
		"peak": 1, "reads": 20, "posts": 1, "connects": 1, "followers": 100, "active": 0.5, "connected": 0.01, "counts": 0.5,
		"follows": 50, "days": 10, "inbox": 500, "outbox": 1000, "pulled": 0.00001, "busy": 0.5, "cores": 2, "sockets": 10_000,
		"master-gb": 10, "most": 0.5,
	})
	s := Size(simple(), a)
	require.InDelta(t, 200, s.Reads, 1e-9)
	require.InDelta(t, 10, s.Posts, 1e-9)
	require.InDelta(t, 500, s.Pushes, 1e-9, "half of 100 followers are active")
	require.InDelta(t, 10, s.Deliveries, 1e-9, "one of 100 is connected")
	require.InDelta(t, 10, s.Connects, 1e-9)

	// Each post has one live recipient, whose delivery is always the first one by its server.
	require.InDelta(t, (200*100+105*40+5*60+10*1000+10*50+10*1000+8640*2)/1e6, *s.Processors.Server, 1e-9)
	require.InDelta(t, (10*500+500*5)/1e6, *s.Processors.Worker, 1e-9)
	require.InDelta(t, (200*200+105*80+5*90+10*2000+500*1+10*20+10*500)/1e6, *s.Processors.SQL, 1e-9)
	// There is one server, so nobody is looked up at a second one.
	require.InDelta(t, 1.0, *s.Servers, 0)
	require.InDelta(t, (200*10+105*20+5*30+10*100+500*2+10*10+10*100)/1e6, *s.Processors.Redis, 1e-9)

	require.InDelta(t, 432_000*(500*100+2000+30)+8.64*1000*100, *s.RedisBytes, 1)
	require.InDelta(t, 3.0, *s.Masters, 0, "22.5 GB, 10 each")
	require.InDelta(t, 864_000*(400+300+100+50*200+10*400.0), *s.SQLBytes, 1)
	require.InDelta(t, 864_000*365*400.0, *s.SQLGrowth, 1)
	require.InDelta(t, 200*8000+10*500.0, *s.SendBytes, 1e-6)
	require.InDelta(t, 8640*30_000.0, *s.SocketRAM, 1e-6)

	// The author's 432,000 followers exceed pull-above: none is pushed to, half are looked up.
	require.Zero(t, s.Largest.Pushes)
	require.InDelta(t, 4320, s.Largest.Deliveries, 1e-9)
	require.InDelta(t, 216_000*0.5/1e6/3, *s.Largest.LookUpTime, 1e-9)
	require.InDelta(t, (50+4319*10)/1e6, *s.Largest.ServerTime, 1e-9)
}

// Replies and reposts cost what was measured of them, and are pushed and stored like posts. If nobody replies
// or reposts, their cost need not be known.
func TestSizeOfConversations(t *testing.T) {
	t.Parallel()
	habits := map[string]float64{"peak": 1, "reads": 0, "posts": 0, "connects": 0, "counts": 0, "followers": 100, "active": 0.5, "connected": 0, "days": 10, "follows": 0, "replies": 1, "reposts": 2}
	s := Size(simple(), assume(t, 864_000, habits))
	require.InDelta(t, 1500, s.Pushes, 1e-9)
	require.InDelta(t, (10*1100+20*900)/1e6, *s.Processors.Server, 1e-9)
	require.InDelta(t, (10*2500+20*1500+1500*1)/1e6, *s.Processors.SQL, 1e-9)
	require.InDelta(t, 864_000*(400+300+100+30*400.0), *s.SQLBytes, 1)

	c := simple()
	c.Reply, c.Repost = Work{}, Work{}
	require.Nil(t, Size(c, assume(t, 864_000, habits)).Processors.Server)
	delete(habits, "replies")
	delete(habits, "reposts")
	require.NotNil(t, Size(c, assume(t, 864_000, habits)).Processors.Server)
}

// Each recipient is looked up at each server. If recipients spread over more servers,
// more deliveries are first ones.
func TestSizeOfManyServers(t *testing.T) {
	t.Parallel()
	a := assume(t, 8_640_000, map[string]float64{
		"peak": 1, "reads": 0, "posts": 1, "connects": 0, "counts": 0, "followers": 100, "active": 0.5, "connected": 0.02, "sockets": 17_280,
	})
	s := Size(simple(), a)
	require.InDelta(t, 10.0, *s.Servers, 0, "172,800 connections")
	first := 10 * (1 - 0.9*0.9) // servers with at least one of two recipients
	require.InDelta(t, (100*(1000+first*50+(2-first)*10)+172_800*2)/1e6, *s.Processors.Server, 1e-9)
	require.InDelta(t, (100*100+5000*2+100*(first*10+(2-first)*1)+5000*9*0.5)/1e6, *s.Processors.Redis, 1e-9)

	busier := assume(t, 864_000_000, map[string]float64{"peak": 1, "reads": 10, "connected": 0.001, "busy": 0.5, "cores": 2, "sockets": 1e6})
	s = Size(simple(), busier)
	require.InDelta(t, *s.Servers, max(1, *s.Processors.Server), 1, "of two processors, half in use")
}

func TestUnknownStaysUnknown(t *testing.T) {
	t.Parallel()
	a := assume(t, 1e6, nil)
	c := simple()
	c.Post.SQL, c.InboxEntry, c.FollowRow, c.Push.Worker, c.Post.Worker = nil, nil, nil, nil, nil
	s := Size(c, a)
	require.Nil(t, s.Processors.SQL)
	require.Nil(t, s.Processors.Worker)
	require.Nil(t, s.Workers)
	require.Nil(t, s.RedisBytes)
	require.Nil(t, s.Masters)
	require.Nil(t, s.SQLBytes)
	require.NotNil(t, s.Processors.Server)
	require.NotNil(t, s.SQLGrowth)
	var text strings.Builder
	require.NoError(t, s.Print(&text, Breaks(c, a)))
	require.Contains(t, text.String(), "| processors in use: PostgreSQL | not known |")
	require.Contains(t, text.String(), "of which there is one | not up to 10,000,000,000, or not known |")

	c.Page.Server = nil
	s = Size(c, a)
	require.Nil(t, s.Servers)
	require.Nil(t, s.Largest.ServerTime)
}

func TestBreaksComeInTheOrderOfGrowth(t *testing.T) {
	t.Parallel()
	a := assume(t, 1, map[string]float64{
		"peak": 1, "reads": 8640, "posts": 0, "connects": 0, "counts": 0, "connected": 0.1, "sockets": 1000, "sql-cores": 1, "busy": 0.5, "active": 0,
	})
	// A user reads every ten seconds, and a read takes 200 µs of PostgreSQL, so 25,000 users take half a
	// processor. The 32,000 connections of 320,000 users fill 32 servers.
	breaks := Breaks(simple(), a)
	require.Contains(t, breaks[0].What, "1 processors of PostgreSQL")
	require.InEpsilon(t, 25_000, *breaks[0].Users, 0.01)
	require.Contains(t, breaks[1].What, "32 servers")
	require.InEpsilon(t, 320_000, *breaks[1].Users, 0.01)
	require.Contains(t, breaks[2].What, "connections to PostgreSQL") // 100 processes: 99 servers and a worker
	require.InEpsilon(t, 990_000, *breaks[2].Users, 0.01)
	for _, b := range breaks {
		require.NotEmpty(t, b.Then)
	}
}

func TestAssume(t *testing.T) {
	t.Parallel()
	a := assume(t, 100, map[string]float64{"posts": 0.5})
	require.InDelta(t, 100, a.Users, 0)
	require.InDelta(t, 0.5, a.Posts, 0)
	require.InDelta(t, 10, a.Reads, 0, "the default")
	for _, x := range a.all() {
		assert.True(t, x.value >= x.least && x.value <= x.most, x.name)
		assert.Contains(t, Help(), x.name+"=")
	}
	for says, c := range map[string]struct {
		users float64
		named map[string]float64
	}{
		"--for is 0: it must be 1 to 10000000000 users":       {0, nil},
		"--for is 20000000000: it must be":                    {2e10, nil},
		"--assume active is 40: it must be 0 to 1":            {1, map[string]float64{"active": 40}},
		"--assume peak is 0.5: it must be 1 to 1000":          {1, map[string]float64{"peak": 0.5}},
		"--assume likes is not known: it must be one of acti": {1, map[string]float64{"likes": 1}},
	} {
		_, err := Assume(c.users, c.named)
		assert.ErrorContains(t, err, says)
	}
	_, err := Assume(0, map[string]float64{"likes": 1, "busy": 7})
	require.Len(t, strings.Split(err.Error(), "\n"), 3, "all that is wrong")
}

func TestPrintConstants(t *testing.T) {
	t.Parallel()
	c := simple()
	c.Machine, c.Unknown, c.Page.Worker = "a machine", []string{"something, because"}, nil
	var text strings.Builder
	require.NoError(t, c.Print(&text))
	require.Contains(t, text.String(), "| page of 20 | 100 µs | not known | 200 µs | 10.0 µs |")
	require.Contains(t, text.String(), "| live event, message | 500 bytes |")
	require.Contains(t, text.String(), "| Redis: fences of an author | not known |")
	require.Contains(t, text.String(), "Not known: something, because")
	require.Error(t, c.Print(broken{}))

	encoded, err := json.Marshal(c)
	require.NoError(t, err)
	require.Contains(t, string(encoded), `"page":{"server":100,"worker":null,"sql":200,"redis":10}`)
	var back Constants
	require.NoError(t, json.Unmarshal(encoded, &back))
	require.Equal(t, c, back)
	names := map[string]float64{}
	c.Each(func(name string, value float64) { names[name] = value })
	require.InDelta(t, 200, names["page of 20: PostgreSQL"], 0)
	require.NotContains(t, names, "page of 20: worker")
}

func TestNumbersAreShort(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]float64{"0": 0, "0.123": 0.1234, "1.23": 1.234, "12.3": 12.34, "123": 123.4, "1,234": 1234, "123,000": 123_456, "12,300,000": 12_345_678} {
		assert.Equal(t, want, count(v))
	}
	require.Equal(t, "2.50 TB", size(new(2.5e12)))
	require.Equal(t, "999 bytes", size(new(999.0)))
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken") }
