package peers

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/centrifugal/centrifuge"
	"github.com/gorilla/websocket"
)

// event is the message that gorilla and centrifuge broadcast. It is as long as the events
// that Tideline's clients select.
const event = `{"__typename":"TimelinePostAdded","position":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","edge":{"cursor":"AAAAAAAAAAAAAAAAAAAAAAAA",` +
	`"node":{"id":"UG9zdDo3MzQ5MTI4MzQ3MTI4Mzc0","text":"` + liveText + `","createdAt":"2026-01-02T03:04:05.678Z","author":{"handle":"user1","name":"User 1"}}}}`

// serveGorilla writes a prepared message to one socket after the other: the lowest cost of a WebSocket
// broadcast in Go without leaving net/http.
func serveGorilla(ctx context.Context) error {
	var mu sync.Mutex
	conns := map[*websocket.Conn]struct{}{}
	upgrader := websocket.Upgrader{ReadBufferSize: 1024, WriteBufferSize: 1024, Subprotocols: []string{graphqlProtocol}}
	socket := func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		mu.Lock()
		conns[conn] = struct{}{}
		mu.Unlock()
		for err == nil {
			_, _, err = conn.NextReader()
		}
		mu.Lock()
		delete(conns, conn)
		mu.Unlock()
	}
	var posting sync.Mutex // a socket has one writer
	post := func(w http.ResponseWriter, _ *http.Request) {
		message, err := websocket.NewPreparedMessage(websocket.TextMessage, []byte(event))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		mu.Lock()
		all := slices.Collect(maps.Keys(conns))
		mu.Unlock()
		posting.Lock()
		defer posting.Unlock()
		for _, conn := range all {
			_ = conn.WritePreparedMessage(message) // a closed connection misses it
		}
	}
	return serveLive(ctx, socket, post, func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(conns)
	})
}

// serveCentrifuge publishes to one channel with centrifuge's default settings.
func serveCentrifuge(ctx context.Context) error {
	node, err := centrifuge.New(centrifuge.Config{})
	if err != nil {
		return err
	}
	node.OnConnecting(func(_ context.Context, e centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		return centrifuge.ConnectReply{Credentials: &centrifuge.Credentials{UserID: e.Token}}, nil
	})
	node.OnConnect(func(c *centrifuge.Client) {
		c.OnSubscribe(func(_ centrifuge.SubscribeEvent, answer centrifuge.SubscribeCallback) {
			answer(centrifuge.SubscribeReply{}, nil)
		})
	})
	if err := node.Run(); err != nil {
		return err
	}
	defer node.Shutdown(context.WithoutCancel(ctx))
	post := func(w http.ResponseWriter, _ *http.Request) {
		if _, err := node.Publish(centrifugeChannel, []byte(event)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
	sockets := centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{})
	return serveLive(ctx, sockets.ServeHTTP, post, node.Hub().NumSubscriptions)
}
