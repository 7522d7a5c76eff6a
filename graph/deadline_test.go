package graph_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/graph"
	"tideline/graph/exec"
)

// The deadline of a request reaches the stores, and the client gets an error that says so.
func TestDeadlineReachesTheStores(t *testing.T) {
	each(t, func(c *client) {
		_, ann := c.signUp("ann")
		for _, query := range []string{`{ timeline { nodes { id } } }`, `mutation { createPost(input: {text: "x"}) { post { id } } }`} {
			ctx, cancel := context.WithDeadline(graph.WithViewer(c.ctx, ann), time.Now())
			op, errs := c.engine.Prepare(ctx, exec.Request{Query: query})
			require.Empty(c.t, errs)
			response := c.engine.Execute(ctx, op)
			require.Len(c.t, response.Errors, 1)
			require.Equal(c.t, graph.CodeTimeout, response.Errors[0].Extensions["code"])
			cancel()
		}
		// Another transaction holds the lock of the row that the mutation needs, so the
		// mutation gives up at its deadline.
		tx, err := c.s.DB.Tx(c.ctx)
		require.NoError(c.t, err)
		defer tx.Rollback()
		require.NoError(c.t, tx.User.UpdateOneID(ann.ID).SetBio("held").Exec(c.ctx))
		ctx, cancel := context.WithTimeout(graph.WithViewer(c.ctx, ann), 200*time.Millisecond)
		defer cancel()
		op, errs := c.engine.Prepare(ctx, exec.Request{Query: `mutation { updateProfile(input: {bio: "x"}) { user { id } } }`})
		require.Empty(c.t, errs)
		response := c.engine.Execute(ctx, op)
		require.Len(c.t, response.Errors, 1)
		require.Equal(c.t, graph.CodeTimeout, response.Errors[0].Extensions["code"])
	})
}
