package check_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

func TestParseCount(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]int{
		"0": 0, " 42\n": 42, "[]": 0, `[{"id":1},{"id":2}]`: 2, `{"data":[1,2,3],"next":null}`: 3, `{"payments": []}`: 0,
	} {
		if got, err := check.ParseCount(output); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", output, got, err, want)
		}
	}
	for _, output := range []string{"", "-1", "1.5", "many", "{}", `{"a":[1],"b":[2]}`, "[1", "null", `"7"`, "7 payments"} {
		if got, err := check.ParseCount(output); err == nil {
			t.Errorf("%q: %d, want an error", output, got)
		}
	}
}

func FuzzParseCount(f *testing.F) {
	for _, seed := range []string{"1", "[1]", `{"a":[]}`, "", "[", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, output string) {
		if n, err := check.ParseCount(output); err == nil && (n < 0 || n > len(output) && !strings.ContainsAny(output, "0123456789")) {
			t.Errorf("%q: %d", output, n)
		}
	})
}

func TestRun(t *testing.T) {
	t.Parallel()
	const limit = time.Minute
	if out, err := check.Command("echo 1; echo note >&2").Run(t.Context(), limit); err != nil || string(out) != "1\n" {
		t.Errorf("%q, %v", out, err)
	}
	_, err := check.Command("echo why >&2; echo more >&2; exit 3").Run(t.Context(), limit)
	if err == nil || !strings.HasSuffix(err.Error(), "exit status 3: why") {
		t.Errorf("%v", err)
	}
	if _, err = check.Command("exec sleep 30").Run(t.Context(), 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "more than 50ms") {
		t.Errorf("%v", err)
	}
	// A command that leaves a process behind, as -restart does, ends all the same, and the process lives on.
	out, err := check.Command("sleep 300 & echo $!").Run(t.Context(), limit)
	if err != nil {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := check.Command("kill "+string(out)).Run(context.Background(), limit); err != nil {
		t.Errorf("the process that was left behind has ended: %v", err)
	}
}
