package migration

import "io/fs"

// Files returns the migrations, and SetFiles has others in their place.
func Files() fs.FS     { return files }
func SetFiles(f fs.FS) { files = f }

// What tests hold against PostgreSQL.
var (
	Effects     = effects
	Strength    = strength
	CreateTable = createTable
)
