package redistest_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
)

// The tests run on the servers that start. A server that does not start is a failure.
func TestMatrix(t *testing.T) {
	t.Parallel()
	redistest.Start(t) // or skip
	name := os.Getenv("ONCEGUARD_SERVERS")
	if name == "" {
		name = "redis-server"
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestKeyspace$", "-test.v")
	servers := []string{name, "/none/redis-server", name}
	cmd.Env = append(os.Environ(), "ONCEGUARD_SERVERS="+strings.Join(servers, string(os.PathListSeparator)))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("got %v, want exit status 1", err)
	}
	for what, want := range map[string]int{
		`redistest: ONCEGUARD_SERVERS names "/none/redis-server":`: 1,
		"redistest: the tests run on ":                             2,
		"--- PASS: TestKeyspace/miniredis ":                        2,
		"--- PASS: TestKeyspace/redis-":                            2,
	} {
		got := strings.Count(strings.ReplaceAll(string(out), "/valkey-", "/redis-"), what)
		if got != want {
			t.Errorf("%q: printed %d times, want %d", what, got, want)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}

func TestIsOlder(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		got, want string
		older     bool
	}{
		{"6.0.16", "6.2", true},
		{"6.0.16", "7.0", true},
		{"6.2.0", "6.2", false},
		{"7.0.15", "6.2", false},
		{"10.2.1", "7.0", false},
		{"7", "7.0", false},
		{"6", "6.2", true},
	} {
		if older := redistest.IsOlder(test.got, test.want); older != test.older {
			t.Errorf("%s before %s: %t", test.got, test.want, older)
		}
	}
}
