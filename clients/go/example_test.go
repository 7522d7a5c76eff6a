package tideline_test

import (
	"context"
	"fmt"
	"log"

	tideline "tideline/clients/go"
)

func ExampleTimeline() {
	ctx, stop := context.WithCancel(context.Background())
	client := &tideline.Client{URL: "http://127.0.0.1:8080/graphql", Token: tideline.Fixed("the token of a session")}
	timeline := tideline.NewTimeline(client, tideline.Options[tideline.Post]{})
	go func() {
		defer stop()
		log.Print(timeline.Run(ctx)) // returns when ctx ends, or on a permanent error
	}()
	for ctx.Err() == nil {
		changed := timeline.Changed()
		now := timeline.Snapshot()
		fmt.Println(now.Live, now.Unread)
		for _, e := range now.Entries {
			fmt.Printf("@%s: %s\n", e.Post.Author.Handle, e.Post.Text)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func ExampleConversation() {
	ctx, stop := context.WithCancel(context.Background())
	client := &tideline.Client{URL: "http://127.0.0.1:8080/graphql", Token: tideline.Fixed("the token of a session")}
	conversation := tideline.NewConversation(client, "the id of a post", tideline.ConversationOptions[tideline.Post]{})
	go func() {
		defer stop()
		log.Print(conversation.Run(ctx)) // returns when ctx ends, or if there is no such post
	}()
	for ctx.Err() == nil {
		changed := conversation.Changed()
		now := conversation.Snapshot()
		for _, reply := range now.Replies {
			fmt.Printf("@%s: %s\n", reply.Post.Author.Handle, reply.Post.Text)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}
