package apikey

import "context"

// NoteUse is what Run does once a minute.
func (k *Keys) NoteUse(ctx context.Context) { k.noteUse(ctx) }
