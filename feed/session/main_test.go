package session_test

import (
	"testing"

	"tideline/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }
