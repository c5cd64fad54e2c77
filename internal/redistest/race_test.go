//go:build race

package redistest_test

import (
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
)

// What the race detector finds in a process fails the test, which may not have
// looked at how that ended.
func TestRaceInAProcess(t *testing.T) {
	t.Parallel()
	r := &reporter{TB: t}
	if err := redistest.Run(r, "race").Wait(t); err == nil {
		t.Error("it ended with 0")
	}
	for _, f := range r.cleanups {
		f()
	}
	if !r.failed {
		t.Error("the test has not failed")
	}
}

// reporter is a test whose failure is not this one's.
type reporter struct {
	testing.TB
	cleanups []func()
	failed   bool
}

func (r *reporter) Cleanup(f func())      { r.cleanups = append(r.cleanups, f) }
func (r *reporter) Errorf(string, ...any) { r.failed = true }
func (r *reporter) Failed() bool          { return false }
