// Package checktest has what the tests of oncecheck share.
package checktest

import (
	"os"
	"os/exec"
	"testing"
)

// longEnv set to 1 enables the long tests.
const longEnv = "ONCEGUARD_LONG"

// Long skips a long test unless ONCEGUARD_LONG=1 is set.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv(longEnv) != "1" {
		t.Skipf("left out: a long test, set %s=1", longEnv)
	}
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
