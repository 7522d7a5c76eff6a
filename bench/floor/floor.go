// Package floor measures the lower bounds that a load's figures are compared with: the same load on
// a minimal server in this process.
package floor

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/sync/errgroup"

	"tideline/bench/client"
)

// floorTime bounds the measurement of each floor.
const floorTime = 2 * time.Second

// Broadcast measures how long a message takes to reach WebSocket clients through gorilla and the kernel
// alone. The message is encoded once and written to one socket after the other. The next one follows when all
// recipients have it. The numbers of recipients repeat those of the posts, until the time is up.
func Broadcast(ctx context.Context, recipients []int, bytes int) (latencies []time.Duration, err error) {
	sockets := slices.Max(recipients)
	ctx, cancel := context.WithTimeout(ctx, client.Timeout+floorTime)
	defer cancel()
	accepted := make(chan *websocket.Conn, sockets)
	upgrader := websocket.Upgrader{ReadBufferSize: 1024, WriteBufferSize: 1024}
	url, stop, err := serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, err := upgrader.Upgrade(w, r, nil); err == nil {
			accepted <- conn
		}
	}))
	if err != nil {
		return nil, err
	}
	defer stop()

	arrivals := make(chan time.Time, sockets)
	var conns []*websocket.Conn // the server's side
	for range sockets {
		conn, _, err := websocket.DefaultDialer.DialContext(ctx, "ws"+strings.TrimPrefix(url, "http"), nil)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		go func() {
			for {
				if _, _, err := conn.ReadMessage(); err != nil {
					return
				}
				arrivals <- time.Now()
			}
		}()
		server := <-accepted
		defer server.Close()
		conns = append(conns, server)
	}
	message, err := websocket.NewPreparedMessage(websocket.TextMessage, []byte(strings.Repeat("x", bytes)))
	if err != nil {
		return nil, err
	}
	for round, end := 0, time.Now().Add(floorTime); time.Now().Before(end); round++ {
		began := time.Now()
		chosen := conns[:recipients[round%len(recipients)]]
		for _, conn := range chosen {
			if err := conn.WritePreparedMessage(message); err != nil {
				return nil, err
			}
		}
		for range chosen {
			select {
			case at := <-arrivals:
				latencies = append(latencies, at.Sub(began))
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return latencies, nil
}

// Pages measures readers of an HTTP server that answers from memory with the given number of bytes. The
// readers use the same client as the load.
func Pages(ctx context.Context, query string, readers, bytes int) (latencies []time.Duration, elapsed time.Duration, err error) {
	const frame = `{"data":{"timeline":""}}`
	page := []byte(strings.Replace(frame, `""`, `"`+strings.Repeat("x", max(0, bytes-len(frame)))+`"`, 1))
	url, stop, err := serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(page) // an error means that the reader has left
	}))
	if err != nil {
		return nil, 0, err
	}
	defer stop()
	c := client.New(url)
	defer c.Close()
	samples := make([][]time.Duration, readers)
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for i := range samples {
		group.Go(func() error {
			for time.Since(began) < floorTime {
				start := time.Now()
				if _, err := c.Call(ctx, "token", query, nil, &struct{}{}); err != nil {
					return err
				}
				samples[i] = append(samples[i], time.Since(start))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, 0, err
	}
	elapsed = time.Since(began)
	for _, s := range samples {
		latencies = append(latencies, s...)
	}
	return latencies, elapsed, nil
}

// serve serves on a free loopback port until stop is called.
func serve(ctx context.Context, h http.Handler) (url string, stop func(), err error) {
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: client.Timeout}
	go func() { _ = server.Serve(listener) }() // until Close
	return fmt.Sprintf("http://%s", listener.Addr()), func() { server.Close() }, nil
}
