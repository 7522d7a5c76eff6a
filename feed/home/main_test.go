package home_test

import (
	"testing"

	"tideline/feed/feedtest"
	"tideline/storage"
	"tideline/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// world is the fixture of this package: feedtest.World with more helpers.
type world struct{ *feedtest.World }

func each(t *testing.T, test func(w *world)) {
	feedtest.Each(t, func(w *feedtest.World) { test(&world{w}) })
}

func eachIdle(t *testing.T, test func(w *world)) {
	feedtest.EachIdle(t, func(w *feedtest.World) { test(&world{w}) })
}

func newWorld(t testing.TB, s *storage.Stores, o feedtest.Options) *world {
	return &world{feedtest.Idle(t, s, o)}
}
