package storage_test

import (
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"go.uber.org/goleak"

	"tideline/storage"
	"tideline/storage/storagetest"
)

func TestMain(m *testing.M) {
	storagetest.Main(m, func() error { return goleak.Find() })
}

func driverOf(s *storage.Stores) dialect.Driver { return entsql.OpenDB(s.Dialect, s.SQL) }
