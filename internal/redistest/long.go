package redistest

import (
	"os"
	"testing"
)

// longEnv set to 1 enables the long tests.
const longEnv = "ONCEGUARD_LONG"

// Long skips a long test unless ONCEGUARD_LONG=1 is set. A test that is still useful with fewer rounds uses [Rounds]
// instead.
func Long(t testing.TB) {
	t.Helper()
	if !isLong() {
		t.Skipf("left out: a long test, set %s=1", longEnv)
	}
}

// Rounds returns all with ONCEGUARD_LONG=1, and few otherwise: the number of repetitions of a test, or its duration.
func Rounds[N any](few, all N) N {
	if isLong() {
		return all
	}
	return few
}

func isLong() bool { return os.Getenv(longEnv) == "1" }
