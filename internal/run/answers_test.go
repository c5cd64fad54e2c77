package run_test

import (
	"testing"

	"github.com/onceguard/onceguard/internal/run"
)

// fault: a kind is added, and its outcome is forgotten
func TestAnswers(t *testing.T) {
	t.Parallel()
	for kind := run.Unprotected; kind < run.KindCount; kind++ {
		if kind.Answer().Outcome == "" {
			t.Errorf("kind %d has no outcome", kind)
		}
	}
}
