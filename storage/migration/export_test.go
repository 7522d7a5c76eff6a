package migration

// What tests hold against PostgreSQL.
var (
	Effects     = effects
	Strength    = strength
	CreateTable = createTable
)
