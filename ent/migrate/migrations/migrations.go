// Package migrations holds the versioned changes of the tables, one directory
// per dialect. They are written by comparing the schema with what the existing
// migrations build, and never edited once released.
package migrations

import "embed"

// FS has the directories sqlite and postgres.
//
//go:embed sqlite/*.sql postgres/*.sql
var FS embed.FS
