package hook_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/hook"
)

func TestParseCount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		output string
		want   int
	}{
		{"0", 0}, {" 42\n", 42}, {"[]", 0}, {`[{"id":1},{"id":2}]`, 2}, {`{"data":[1,2,3],"next":null}`, 3}, {`{"payments": []}`, 0},
	} {
		if got, err := hook.ParseCount([]byte(c.output)); err != nil || got != c.want {
			t.Errorf("%q: %d, %v; want %d", c.output, got, err, c.want)
		}
	}
	for _, output := range []string{"", "-1", "1.5", "many", "{}", `{"a":[1],"b":[2]}`, "[1", "null", `"7"`, "7 payments"} {
		if got, err := hook.ParseCount([]byte(output)); err == nil {
			t.Errorf("%q: %d, want an error", output, got)
		}
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	if out, err := hook.Command("echo 1; echo note >&2; exit 0").Run(t.Context()); err != nil || string(out) != "1\n" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := hook.Command("echo why >&2; echo more >&2; exit 3").Run(t.Context()); err == nil ||
		!strings.HasSuffix(err.Error(), "exit status 3: why") {
		t.Errorf("%v", err)
	}
	if hook.Command("").Given() || !hook.Command("true").Given() {
		t.Error("Given")
	}
}

// A command that leaves a process behind, as -restart does, ends all the same, and the process lives on.
func TestRunLeavesAProcessBehind(t *testing.T) {
	t.Parallel()
	began := time.Now()
	out, err := hook.Command("sleep 30 & echo $!").Run(t.Context())
	if err != nil || time.Since(began) > 25*time.Second {
		t.Errorf("%q, %v after %v", out, err, time.Since(began))
	}
	if _, err := hook.Command("kill " + string(out)).Run(t.Context()); err != nil {
		t.Errorf("the process that was left behind has ended: %v", err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	late := errors.New("it took too long")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, late)
	defer cancel()
	if _, err := hook.Command("exec sleep 30").Run(ctx); !errors.Is(err, late) {
		t.Errorf("%v", err)
	}
}

func FuzzParseCount(f *testing.F) {
	for _, seed := range []string{"1", "[1]", `{"a":[]}`, "", "[", "\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, output []byte) {
		if n, err := hook.ParseCount(output); err == nil && (n < 0 || n > len(output) && !strings.ContainsAny(string(output), "0123456789")) {
			t.Errorf("%q: %d", output, n)
		}
	})
}
