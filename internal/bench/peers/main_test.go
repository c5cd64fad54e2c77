package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestTable(t *testing.T) {
	t.Parallel()
	one, err := readColumn("one", []byte(`{"checks":[
		{"id":"key/a","level":"MUST","verdict":"held"},
		{"id":"key/b","level":"MUST","verdict":"not asked"},
		{"id":"once/a","level":"SHOULD","verdict":"failed"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	other, err := readColumn("other", []byte(`{"checks":[
		{"id":"key/a","level":"MUST","verdict":"held"},
		{"id":"key/b","level":"MUST","verdict":"failed"},
		{"id":"once/a","level":"SHOULD","verdict":"not asked"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		each bool
		want string
	}{
		{false, "| | one | other |\n|---|---|---|\n| key | 1/1 | 1/2 |\n| once | 0/1 | |\n"},
		{true, "| | one | other |\n|---|---|---|\n| `key/b` MUST | not asked | failed |\n| `once/a` SHOULD | failed | not asked |\n"},
	} {
		var got strings.Builder
		if err := writeTable(&got, []column{one, other}, test.each); err != nil {
			t.Fatal(err)
		}
		if got.String() != test.want {
			t.Errorf("each %v: got\n%swant\n%s", test.each, got.String(), test.want)
		}
	}
}

// TestAtMostOnce asks onceguard with WithAtMostOnce: whatever it does not hold is advice.
func TestAtMostOnce(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	self := filepath.Join(t.TempDir(), "peers") // it is its own instance
	if out, err := exec.Command("go", "build", "-o", self, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	output, err := exec.Command(self, "-only", "onceguard-at-most-once", "-checks").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for line := range strings.Lines(string(output)) {
		if strings.Contains(line, "failed") && !strings.Contains(line, "ADVICE") {
			t.Error(line)
		}
	}
}
