// Package checktest has what the tests of oncecheck share. [Command] makes the test binary stand for curl in the commands
// that oncecheck runs, so that the tests need no other program.
package checktest

import (
	"os"
	"os/exec"
	"testing"
)

// longEnv set to 1 enables the long tests.
const longEnv = "ONCEGUARD_LONG"

func isLong() bool { return os.Getenv(longEnv) == "1" }

// Long skips a long test unless ONCEGUARD_LONG=1 is set.
func Long(t testing.TB) {
	t.Helper()
	if !isLong() {
		t.Skipf("left out: a long test, set %s=1", longEnv)
	}
}

// Rounds returns all with ONCEGUARD_LONG=1, and few otherwise.
func Rounds(few, all int) int {
	if isLong() {
		return all
	}
	return few
}

// MustHave skips the test without these programs, or fails it with CI=true.
func MustHave(t testing.TB, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") == "true" {
			t.Fatal(err)
		} else if err != nil {
			t.Skipf("left out: %v", err)
		}
	}
}
