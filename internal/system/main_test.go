// Package system_test tests the whole system in separate processes: servers that are killed under load, and the
// README's program.
package system_test

import (
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Main(m, redistest.Program{Name: "payments-server", Run: servePayments})
}

// patience bounds every wait. Only a failing test waits this long.
const patience = 20 * time.Second
