// Package migrations holds the versioned changes of the tables, one directory
// per dialect. They are written by comparing the schema with what the existing
// migrations build, and never edited once released. What fills new columns is
// added by hand. So is what SQLite would rebuild a table for that others refer to:
// in a transaction their foreign keys hold, and dropping it would empty them.
package migrations

import "embed"

// FS has the directories sqlite and postgres.
//
//go:embed sqlite/*.sql postgres/*.sql
var FS embed.FS
