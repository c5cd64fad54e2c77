package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// redisFor returns a server that ends with the test. Without redis-server the test is skipped, or fails if CI=true.
func redisFor(t testing.TB) *server {
	t.Helper()
	s, err := startRedis(t.Context())
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

func TestParse(t *testing.T) {
	cfg, err := parse([]string{"-rounds", "3", "-callers", "1,64", "-only", "^lock/", "-seed", "7", "-http"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.rounds != 3 || !slices.Equal(cfg.callers, []int{1, 64}) || cfg.only.String() != "^lock/" ||
		cfg.seed != 7 || !cfg.http {
		t.Errorf("got %+v", cfg)
	}
	for _, args := range [][]string{
		{"-rounds", "0"}, {"-time", "0s"}, {"-callers", ""}, {"-callers", "1,0"}, {"-callers", "x"}, {"-only", "("}, {"x"},
	} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

func TestRun(t *testing.T) {
	redisFor(t)
	for _, args := range [][]string{nil, {"-http"}} {
		cfg, err := parse(append(args, "-rounds", "2", "-time", "5ms", "-callers", "1,16", "-seed", "5"), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		var out, progress strings.Builder
		if err := run(t.Context(), cfg, &out, &progress); err != nil {
			t.Fatalf("%v\n%s", err, progress.String())
		}
		for _, want := range []string{
			"go1.", "Redis 7.", "seed: 5", "- 1 caller: not pinned", "### Replay, thousands a second", "| replay / fiber | ",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q lacks %q:\n%s", args, want, out.String())
			}
		}
	}
}

func TestCommandOf(t *testing.T) {
	for first, want := range map[string]command{"curve": curve, "soak": soak, "-http": compare} {
		got, args := commandOf([]string{first, "-x"})
		if reflect.ValueOf(got).Pointer() != reflect.ValueOf(want).Pointer() {
			t.Errorf("%s is another command", first)
		}
		if wantArgs := len(args) == 1; wantArgs != (first != "-http") {
			t.Errorf("%s is given %q", first, args)
		}
	}
	if _, args := commandOf(nil); len(args) != 0 {
		t.Errorf("arguments out of nothing: %q", args)
	}
}
