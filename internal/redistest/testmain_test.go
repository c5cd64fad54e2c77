package redistest_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
)

// Not parallel: the environment is the process's.
func TestWithoutRedisServer(t *testing.T) {
	starts := map[string]func(testing.TB){
		"Start":         func(t testing.TB) { redistest.Start(t) },
		"StartSentinel": func(t testing.TB) { redistest.StartSentinel(t, 1) },
		"StartCluster":  func(t testing.TB) { redistest.StartCluster(t, 1, 0) },
	}
	for name, test := range map[string]struct{ ci, servers, want string }{
		"at home": {"", "", "skipped"},
		"CI":      {"true", "", "failed"},
		"named":   {"", "/none/redis-server", "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", t.TempDir())
			t.Setenv("CI", test.ci)
			t.Setenv("ONCEGUARD_SERVERS", test.servers)
			for name, start := range starts {
				r := &recorder{TB: t, outcome: "started"}
				done := make(chan struct{})
				go func() {
					defer close(done)
					start(r)
				}()
				<-done
				if r.outcome != test.want {
					t.Errorf("%s: got %s, want %s", name, r.outcome, test.want)
				}
			}
		})
	}
}

// recorder is a test that does not end this one.
type recorder struct {
	testing.TB
	outcome string
	said    string
}

func (r *recorder) Skip(...any)  { r.outcome = "skipped"; runtime.Goexit() }
func (r *recorder) Fatal(...any) { r.outcome = "failed"; runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	r.Fatal()
}
