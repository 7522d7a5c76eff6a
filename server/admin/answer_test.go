package admin

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/feed/refusal"
)

// Every refusal has a status of its own code, and says when to come back.
func TestRefusalsHaveAStatus(t *testing.T) {
	for _, reason := range refusal.Reasons() {
		w := httptest.NewRecorder()
		(&Page{}).answer(w, httptest.NewRequest(http.MethodGet, "/", nil), nil, refusal.New(reason, "no").Retry(7))
		require.GreaterOrEqual(t, w.Code, 400, reason)
		require.Less(t, w.Code, 600, reason)
		require.Equal(t, "7", w.Header().Get("Retry-After"), reason)
		require.Contains(t, w.Body.String(), reason.Name)
	}
}
