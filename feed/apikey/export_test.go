package apikey

import "context"

// NoteUse is the write that Run makes once a minute.
func (k *Keys) NoteUse(ctx context.Context) { k.noteUse(ctx) }
