package seed

import (
	"testing"

	"go.uber.org/goleak"

	"tideline/storage/storagetest"
)

func TestMain(m *testing.M) {
	storagetest.Main(m, func() error { return goleak.Find() })
}
