// Package system_test has the tests of the whole system that need processes of their own: servers that are killed under
// load, and the README's program.
package system_test

import (
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Main(m, redistest.Program{Name: "payments-server", Run: servePayments})
}

// patience bounds every wait for what must happen. Only a test that fails waits this long.
const patience = 20 * time.Second
