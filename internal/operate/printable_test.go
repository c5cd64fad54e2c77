package operate

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// hostile has what a terminal would act on: an escape sequence, its form of one byte, a line break, an override of the
// direction, and a tag beyond 16 bits.
const hostile = "\x1b]0;owned\x07\u009b31m\x9b\r\nstate    settled\u202e\u2028\U000e0041"

// wantPrintable checks that the output has nothing but lines of printable characters.
func wantPrintable(t *testing.T, r result) {
	t.Helper()
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

func TestOutputIsPrintable(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	url := "redis://" + server.Addr()
	locker := lock.New(server.Client(t), hostile, lock.WithOpTimeout(20*time.Second), lock.WithTTL(time.Minute))
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	lease, err := locker.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	key, free := locker.StorageKey("k"), locker.StorageKey("free")
	change := []string{"-redis", url, "-token", lease.Token(), "-reason", hostile}
	for name, test := range map[string]struct {
		code int
		args []string
	}{
		"inspect":       {exitDone, []string{"inspect", "-redis", url, key}},
		"inspect, JSON": {exitDone, []string{"inspect", "-json", "-redis", url, key}},
		"scan":          {exitDone, []string{"scan", "-namespace", hostile, "-rate", "100000", "-redis", url}},
		"scan, JSON":    {exitDone, []string{"scan", "-json", "-namespace", hostile, "-rate", "100000", "-redis", url}},
		"free":          {exitFree, []string{"inspect", "-redis", url, free}},
		"forget":        {exitRefused, append([]string{"forget", key}, change...)},
		"forget, free":  {exitFree, append([]string{"forget", free}, change...)},
		"what it is of": {exitFree, []string{
			"inspect", "-redis", url, "-namespace", hostile, "-user", hostile, "-method", hostile, "-path", "/" + hostile, "-key", "k",
		}},
		"lock":            {exitFree, []string{"inspect", "-redis", url, "-namespace", hostile, "-lock", hostile}},
		"unknown flag":    {exitUsage, []string{"inspect", "-" + hostile}},
		"bad flag":        {exitUsage, []string{"inspect", "--=" + hostile}},
		"flag's value":    {exitUsage, []string{"inspect", "-timeout", hostile}},
		"unknown command": {exitUsage, []string{hostile}},
		"file":            {exitUsage, append([]string{"resolve", "-status", "200", "-body-file", "/nowhere/" + hostile, key}, change...)},
	} {
		r := onceguard(t, test.args...)
		r.want(t, test.code)
		wantPrintable(t, r)
		if strings.Contains(name, "JSON") {
			var f facts
			if err := json.Unmarshal([]byte(r.stdout), &f); err != nil || f.Key != strings.ToValidUTF8(key, "\ufffd") {
				t.Errorf("%s: %q, %v, want the key %q", name, f.Key, err, key)
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
		if strings.ContainsFunc(got, func(c rune) bool { return !unicode.IsPrint(c) }) {
			t.Errorf("%q", got)
		}
		if again := printable(got); again != got {
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
