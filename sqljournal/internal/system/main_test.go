// Package system_test tests the journal as a whole, on a real PostgreSQL and a real Redis: servers in separate
// processes that are killed, and messages that are lost at the instant that a test names.
package system_test

import (
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Main(m, redistest.Program{Name: "shop", Run: serveShop})
}

// patience bounds every wait. Only a failing test waits this long.
const patience = 30 * time.Second
