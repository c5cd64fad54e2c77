package redistest_test

import (
	"runtime"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
)

// Not parallel: the environment is the process's.
func TestWithoutRedisServer(t *testing.T) {
	for name, test := range map[string]struct{ ci, want string }{
		"at home": {"", "skipped"},
		"CI":      {"true", "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", t.TempDir())
			t.Setenv("CI", test.ci)
			r := &recorder{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				redistest.Start(r)
				r.outcome = "started"
			}()
			<-done
			if r.outcome != test.want {
				t.Errorf("got %s, want %s", r.outcome, test.want)
			}
		})
	}
}

// recorder is a test that does not end this one.
type recorder struct {
	testing.TB
	outcome string
}

func (r *recorder) Skip(...any)  { r.outcome = "skipped"; runtime.Goexit() }
func (r *recorder) Fatal(...any) { r.outcome = "failed"; runtime.Goexit() }
