package alarms

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The endpoint of a webhook fails for an hour, and then for days. The test changes times in the
// database instead of waiting.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	endpoint := newEndpoint(t)
	h := newFixture(t, "TIDELINE_WEBHOOK_NETWORKS=127.0.0.0/8", "TIDELINE_WEBHOOK_HTTP=on")
	h.run(t, "webhooks", "add", endpoint.URL, "--types=post.created")
	failed := func(set string) {
		await(t, func() { h.post(t) }, "a delivery has failed", func() bool {
			// Update all pending deliveries, because the oldest one may be in its first attempt now.
			return h.exec(t, "UPDATE webhook_deliveries SET "+set+" WHERE state = 'PENDING'"+
				" AND EXISTS (SELECT 1 FROM webhook_deliveries f WHERE f.state = 'PENDING' AND f.attempts > 0)") > 0
		})
	}
	hour := time.Hour.Milliseconds()
	h.try(t, fault{
		what:   "a webhook's endpoint fails for an hour",
		alerts: []string{"TidelineWebhooksLate"},
		cause:  func() { endpoint.fails.Store(true); failed(fmt.Sprintf("created_at = created_at - %d", 2*hour)) },
		cure: func() {
			endpoint.fails.Store(false)
			h.run(t, "webhooks", "test", "1")
		},
		// A delivery in progress during the cure may have failed and be due only in five minutes.
		well: func() { h.run(t, "webhooks", "replay", "--endpoint=1") },
	})
	h.try(t, fault{
		what:   "a webhook's endpoint fails for days",
		alerts: []string{"TidelineWebhooksGivenUp"},
		cause: func() {
			endpoint.fails.Store(true)
			failed(fmt.Sprintf("retry_since = retry_since - %d, due_at = 0", 80*hour))
		},
		cure: func() {
			endpoint.fails.Store(false)
			h.run(t, "webhooks", "test", "1")
		},
		well: func() { h.run(t, "webhooks", "replay", "--endpoint=1") },
	})
	require.NotZero(t, endpoint.took.Load())
}
