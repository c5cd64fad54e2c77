package redistest_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
)

// Not parallel: it changes the environment.
func TestWithoutRedisServer(t *testing.T) {
	starts := map[string]func(testing.TB){
		"Start":         func(t testing.TB) { redistest.Start(t) },
		"StartSentinel": func(t testing.TB) { redistest.StartSentinel(t, 1) },
		"StartCluster":  func(t testing.TB) { redistest.StartCluster(t, 1, 0) },
	}
	for name, test := range map[string]struct{ ci, servers, want string }{
		"neither": {"", "", "skipped"},
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

// Not parallel: it changes the environment.
func TestLong(t *testing.T) {
	for value, want := range map[string]struct {
		outcome string
		rounds  int
	}{
		"":  {"skipped", 10},
		"0": {"skipped", 10},
		"1": {"ran", 100},
	} {
		t.Setenv("ONCEGUARD_LONG", value)
		r := &recorder{TB: t, outcome: "ran"}
		done := make(chan struct{})
		go func() {
			defer close(done)
			redistest.Long(r)
		}()
		<-done
		if rounds := redistest.Rounds(10, 100); r.outcome != want.outcome || rounds != want.rounds {
			t.Errorf("ONCEGUARD_LONG=%s: %s, %d rounds, want %v", value, r.outcome, rounds, want)
		}
	}
}

// Main prints in one line which tests are left out, and why. It prints nothing if all run.
func TestMainPrintsWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const noServer, notLong = "redis-server is not on the PATH", "ONCEGUARD_LONG=1 is not set"
	for name, test := range map[string]struct {
		env  []string
		want []string
	}{
		"nothing": {[]string{"CI=true", "ONCEGUARD_LONG=1"}, nil},
		"long":    {[]string{"CI=true", "ONCEGUARD_LONG="}, []string{notLong}},
		"server":  {[]string{"PATH=", "CI=", "ONCEGUARD_SERVERS=", "ONCEGUARD_LONG=1"}, []string{noServer}},
		"both":    {[]string{"PATH=", "CI=", "ONCEGUARD_SERVERS=", "ONCEGUARD_LONG="}, []string{noServer, notLong}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(self, "-test.run=^TestIsOlder$")
			cmd.Env = append(os.Environ(), test.env...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var lines []string
			for line := range strings.Lines(string(out)) {
				if strings.HasPrefix(line, "redistest: left out: ") {
					lines = append(lines, line)
				}
			}
			got := strings.Join(lines, "")
			if len(lines) != min(len(test.want), 1) {
				t.Errorf("%d lines, want one at most:\n%s", len(lines), out)
			}
			for _, reason := range []string{noServer, notLong} {
				if strings.Contains(got, reason) != slices.Contains(test.want, reason) {
					t.Errorf("printed %q, want %q", got, test.want)
				}
			}
		})
	}
}

// recorder is a testing.TB whose Skip and Fatal do not end this test.
type recorder struct {
	testing.TB
	outcome string
	message string
}

func (r *recorder) Skip(...any)          { r.outcome = "skipped"; runtime.Goexit() }
func (r *recorder) Skipf(string, ...any) { r.Skip() }
func (r *recorder) Fatal(...any)         { r.outcome = "failed"; runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) {
	r.message = fmt.Sprintf(format, args...)
	r.Fatal()
}
