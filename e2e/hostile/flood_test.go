package hostile

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// crowd is the number of concurrent hostile connections.
const crowd = 2000

// slack allows for the goroutines and files that a busy process uses for other purposes,
// such as connections to its stores.
const slack = crowd / 10

// served bounds the median wait of an ordinary client during a flood. It is generous,
// because the server shares the machine with the flood and with other tests. Each request
// must also succeed, within its deadline.
const served = time.Second

func TestFloods(t *testing.T) {
	p := start(t, "--rate-limit=off", "--request-timeout=10s") // the machine may stall for seconds
	token := p.signUp("x")
	p.ask("{viewer{handle}}", nil, as(token))
	address := strings.TrimPrefix(p.url, "http://")
	half := func(text string) func() (io.Closer, error) {
		return func() (io.Closer, error) {
			conn, err := net.Dial("tcp", address)
			if err == nil {
				_, err = io.WriteString(conn, text)
			}
			return conn, err
		}
	}
	for _, flood := range []struct {
		name string
		open func() (io.Closer, error)
	}{
		{"silent sockets", func() (io.Closer, error) { return dial(p, "") }},
		{"idle subscriptions", func() (io.Closer, error) { return dial(p, token) }},
		{"slow headers", half("POST /graphql HTTP/1.1\r\nHost: x\r\nX-Slow: ")},
		{"slow bodies", half("POST /graphql HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat(" ", 20_000))},
	} {
		t.Run(flood.name, func(t *testing.T) {
			http.DefaultClient.CloseIdleConnections()
			goroutines, files, before := p.metric("go_goroutines"), p.files(), p.rss()
			stop := p.bystander(t, token)
			conns := make([]io.Closer, crowd)
			var opening errgroup.Group
			opening.SetLimit(64)
			for i := range conns {
				opening.Go(func() (err error) {
					conns[i], err = flood.open()
					return err
				})
			}
			require.NoError(t, opening.Wait())
			if flood.name == "idle subscriptions" {
				p.reaches(t, "tideline_live_subscriptions", crowd)
			}
			<-time.After(time.Second)
			held := p.rss()
			for _, c := range conns {
				c.Close()
			}
			waits := stop()
			require.NotEmpty(t, waits)
			slices.Sort(waits)
			median, p95, most := waits[len(waits)/2], waits[len(waits)*95/100], waits[len(waits)-1]
			require.Less(t, median, served)
			require.Eventually(t, func() bool {
				return p.metric("go_goroutines") <= goroutines+slack && p.files() <= files+slack
			}, patience, poll, "goroutines (%d before) and files (%d before) come back", goroutines, files)
			p.healthy()
			t.Logf("an ordinary client asked %d times and waited %v, p95 %v, %v at most; memory %d MiB before, %d during, %d after",
				len(waits), median, p95, most, before, held, p.rss())
		})
	}
}

// reaches waits until a gauge reaches a value. There is no total time limit as long as the
// gauge keeps rising.
func (p *target) reaches(t *testing.T, gauge string, value int) {
	for seen := -1; seen < value; {
		require.Eventually(t, func() bool {
			before := seen
			seen = p.metric(gauge)
			return seen > before
		}, patience, 10*poll, "%s rises from %d to %d", gauge, seen, value)
	}
}

// bystander repeats a request as an ordinary client until stop is called. stop returns how
// long each answer took. Each answer must be correct.
func (p *target) bystander(t *testing.T, token string) (stop func() []time.Duration) {
	done := make(chan struct{})
	var running sync.WaitGroup
	var waits []time.Duration
	running.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(50 * time.Millisecond):
			}
			begin := time.Now()
			request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/graphql", strings.NewReader(`{"query":"{timeline{nodes{id}}}"}`))
			request.Header.Set("Content-Type", "application/json")
			as(token)(request)
			response, err := http.DefaultClient.Do(request)
			if t.Context().Err() != nil || !assert.NoError(t, err) { // the test has failed or ended
				return
			}
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			waits = append(waits, time.Since(begin))
			assert.JSONEq(t, `{"data":{"timeline":{"nodes":[]}}}`, string(body), "after %v", waits[len(waits)-1])
		}
	})
	return func() []time.Duration { close(done); running.Wait(); return waits }
}

// dial opens a socket. With a token it also authenticates, subscribes, and answers the
// server's pings, so that the connection stays open while the others are opened.
func dial(p *target, token string) (io.Closer, error) {
	dialer := websocket.Dialer{Subprotocols: []string{"graphql-transport-ws"}, ReadBufferSize: 512, WriteBufferSize: 512}
	conn, response, err := dialer.Dial("ws"+strings.TrimPrefix(p.url, "http")+"/graphql", nil)
	if err != nil {
		return nil, err
	}
	response.Body.Close()
	if token == "" {
		return conn, nil
	}
	const subscribe = `{"id":"1","type":"subscribe","payload":{"query":"subscription{timelineEvents{__typename}}"}}`
	err = conn.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"type":"connection_init","payload":{"Authorization":"Bearer %s"}}`, token))
	if err != nil {
		return nil, err
	}
	if _, _, err := conn.ReadMessage(); err != nil {
		return nil, err
	}
	if err := conn.WriteMessage(websocket.TextMessage, []byte(subscribe)); err != nil {
		return nil, err
	}
	go func() {
		for {
			if _, _, err := conn.ReadMessage(); err != nil {
				return
			}
		}
	}()
	return conn, nil
}
