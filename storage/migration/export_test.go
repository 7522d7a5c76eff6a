package migration

import "io/fs"

// Files returns the migrations, and SetFiles replaces them.
func Files() fs.FS     { return files }
func SetFiles(f fs.FS) { files = f }

// For tests that compare with PostgreSQL.
var (
	Effects     = effects
	Strength    = strength
	CreateTable = createTable
)
