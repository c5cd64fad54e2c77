package system_test

import (
	"regexp"
	"strings"
	"testing"
)

// No test has failed on a server of docs/servers.md, which is the list of those that are supported. The oldest Redis is that of
// README.md.
func TestSupportedServers(t *testing.T) {
	t.Parallel()
	oldest := ""
	row := regexp.MustCompile(`(?m)^\| (redis|valkey|postgresql)-([\d.]+) \| (\S+) \| (\d+) \| \d+ \| (\d+) \|`)
	for _, m := range row.FindAllStringSubmatch(readPage(t, "docs/servers.md"), -1) {
		kind, version, ran, passed, failed := m[1], m[2], m[3], m[4], m[5]
		if !strings.HasPrefix(ran+".", version+".") {
			t.Errorf("%s-%s: the tests ran on %s", kind, version, ran)
		}
		if passed == "0" || failed != "0" {
			t.Errorf("%s-%s: %s tests passed and %s failed", kind, version, passed, failed)
		}
		if kind == "redis" && oldest == "" {
			oldest = version
		}
	}
	if needs := "You need Go 1.25, and Redis " + oldest + " or "; !strings.Contains(readPage(t, "README.md"), needs) {
		t.Errorf("README.md does not say %q", needs)
	}
}
