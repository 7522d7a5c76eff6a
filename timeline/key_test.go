package timeline

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKindOfEachKey(t *testing.T) {
	t.Parallel()
	// The coverage of an inbox also has its journal.
	for key, want := range map[string]string{
		Inbox(12).set(): KindInbox, Inbox(12).meta(): KindJournal, Outbox(12).set(): KindOutbox, Outbox(12).meta(): KindCoverage,
		Outbox(12).fences(): KindFences, activeKey(3): KindActive, latestKey(4): KindLatest,
		Conversation(12).key: KindConversation, Relations(12).key: KindRelations,
		Inbox(12).told(3): "", "live:procs": "", "tl:{": "", "tl:{x}": "", "": "",
	} {
		require.Equal(t, want, KindOf(key), key)
	}
}
