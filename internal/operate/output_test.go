package operate

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// full is a device without room.
type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }

// fault: the output of a command is lost, as on /dev/full. Expected: the exit code is not that of success, and the other
// stream says why.
func TestLostOutput(t *testing.T) {
	s := openMini(t)
	key := s.strand("k1")
	for _, line := range []string{"help", "inspect " + key, "inspect -json " + key, "scan -namespace shop", "inspect -help"} {
		var stderr strings.Builder
		env := Environment{Stdout: full{}, Stderr: &stderr, Getenv: func(string) string { return "" }}
		isHelp := line == "inspect -help"
		if isHelp {
			env.Stdout, env.Stderr = io.Discard, full{}
		}
		code := Run(t.Context(), append(strings.Fields(line), "-redis", s.url), env)
		if code != exitFailed || !isHelp && !strings.Contains(stderr.String(), errFull.Error()) {
			t.Errorf("%s: %d, %s", line, code, stderr.String())
		}
	}
}

// hostile has what a terminal would act on: an escape sequence, its form of one byte, a line break, an override of the
// direction, and a tag beyond 16 bits.
const hostile = "\x1b]0;owned\x07\u009b31m\x9b\r\nstate    settled\u202e\u2028\U000e0041"

// The output has nothing but lines of printable characters.
func TestOutputIsPrintable(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locker := lock.New(server.Client(t), hostile, lock.WithOpTimeout(30*time.Second), lock.WithTTL(2*time.Minute))
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	lease, err := locker.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	key, free := locker.StorageKey("k"), locker.StorageKey("free")
	ofRedis := " -redis redis://" + server.Addr()
	change := []string{"-token", lease.Token(), "-reason", hostile}
	for _, test := range []struct {
		code int
		line string
		more []string
	}{
		{exitDone, "inspect" + ofRedis, []string{key}},
		{exitDone, "inspect -json" + ofRedis, []string{key}},
		{exitDone, "scan -rate 100000" + ofRedis, []string{"-namespace", hostile}},
		{exitRefused, "forget" + ofRedis, append(change, key)},
		{exitFree, "forget" + ofRedis, append(change, free)},
		{exitFree, "inspect -key k" + ofRedis, []string{"-namespace", hostile, "-user", hostile, "-method", hostile, "-path", "/" + hostile}},
		{exitUsage, "inspect", []string{"-" + hostile}},
		{exitUsage, "inspect -timeout", []string{hostile}},
		{exitUsage, "", []string{hostile}},
		{exitUsage, "resolve -status 200", append(change, "-body-file", "/nowhere/"+hostile, key)},
	} {
		r := onceguard(t, Environment{}, test.line, test.more...).want(test.code)
		for line := range strings.Lines(r.stdout + r.stderr) {
			line = strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "") // -help has tabs
			if !utf8.ValidString(line) || strings.ContainsFunc(line, func(c rune) bool { return !unicode.IsPrint(c) }) {
				t.Errorf("%q", line)
			}
			if strings.HasPrefix(line, "state    settled") {
				t.Errorf("a forged line: %q", line)
			}
		}
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// FuzzPrintable checks that any text becomes printable, that a printable one stays as it is, and that JSON keeps its
// value.
func FuzzPrintable(f *testing.F) {
	f.Add(hostile)
	f.Add(`"a\\u202e" b é`)
	f.Fuzz(func(t *testing.T, s string) {
		got := printable(s)
		if again := printable(got); again != got || strings.ContainsFunc(got, func(c rune) bool { return !unicode.IsPrint(c) }) {
			t.Errorf("%q, then %q", got, again)
		}
		var b strings.Builder
		if err := writeJSON(&b, s); err != nil {
			t.Fatal(err)
		}
		var back string
		if err := json.Unmarshal([]byte(b.String()), &back); err != nil || back != strings.ToValidUTF8(s, "\ufffd") && utf8.ValidString(s) {
			t.Errorf("%q became %q: %v", s, back, err)
		}
	})
}
