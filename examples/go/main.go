// Command go prints the newest page of a timeline, and then its changes until it is
// interrupted.
//
//	TIDELINE_URL=http://127.0.0.1:8080 TIDELINE_TOKEN=… go run ./examples/go
package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"

	tideline "tideline/clients/go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client := &tideline.Client{
		URL:   strings.TrimSuffix(os.Getenv("TIDELINE_URL"), "/") + "/graphql",
		Token: tideline.Fixed(os.Getenv("TIDELINE_TOKEN")),
	}
	timeline := tideline.NewTimeline(client, tideline.Options[tideline.Post]{})
	if err := timeline.Read(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	shown := map[string]float64{} // score by post id
	for _, e := range timeline.Snapshot().Entries {
		fmt.Printf("@%s: %s\n", e.Post.Author.Handle, e.Post.Text)
		shown[e.ID] = e.Score
	}
	ended := make(chan error, 1)
	go func() { ended <- timeline.Run(ctx) }()
	for live := false; ; {
		changed := timeline.Changed()
		now := timeline.Snapshot()
		if now.Live != live {
			live = now.Live
			fmt.Println(map[bool]string{true: "listening", false: "connecting again"}[live])
		}
		update(shown, now.Entries)
		select {
		case <-changed:
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
}

// update prints new posts and posts that are gone. A post below the oldest entry is not
// gone: the timeline only holds a limited number of entries.
func update(shown map[string]float64, entries []tideline.Entry[tideline.Post]) {
	there, oldest := map[string]bool{}, math.Inf(-1)
	if len(entries) > 0 {
		oldest = entries[len(entries)-1].Score
	}
	for _, e := range slices.Backward(entries) {
		there[e.ID] = true
		if _, known := shown[e.ID]; !known {
			fmt.Printf("new from @%s: %s\n", e.Post.Author.Handle, e.Post.Text)
			shown[e.ID] = e.Score
		}
	}
	for id, score := range shown {
		if !there[id] {
			if score >= oldest {
				fmt.Println("gone:", id)
			}
			delete(shown, id)
		}
	}
}
