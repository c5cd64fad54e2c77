package redistest

import (
	"os"
	"testing"
)

// longEnv asks for the tests that take long, too.
const longEnv = "ONCEGUARD_LONG"

// Long skips a test that takes long by nature, unless ONCEGUARD_LONG=1 is set.
// A test that can show something in less time uses [Rounds] instead.
func Long(t testing.TB) {
	t.Helper()
	if !isLong() {
		t.Skipf("left out: takes long, set %s=1", longEnv)
	}
}

// Rounds returns how often, or for how long, a test tries its luck: all with
// ONCEGUARD_LONG=1, and few without it.
func Rounds[N any](few, all N) N {
	if isLong() {
		return all
	}
	return few
}

func isLong() bool { return os.Getenv(longEnv) == "1" }
