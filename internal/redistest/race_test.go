//go:build race

package redistest_test

import (
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
)

// A data race in a process fails the test, even if the test has not checked how the process ended.
func TestRaceInAProcess(t *testing.T) {
	t.Parallel()
	r := &reporter{TB: t}
	if err := redistest.Run(r, "race").Wait(t); err == nil {
		t.Error("exit code 0, want another")
	}
	for _, f := range r.cleanups {
		f()
	}
	if !r.failed {
		t.Error("the test did not fail")
	}
}

type reporter struct {
	testing.TB
	cleanups []func()
	failed   bool
}

func (r *reporter) Cleanup(f func())      { r.cleanups = append(r.cleanups, f) }
func (r *reporter) Errorf(string, ...any) { r.failed = true }
func (r *reporter) Failed() bool          { return false }
