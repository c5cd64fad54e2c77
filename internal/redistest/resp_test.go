package redistest_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
)

func array(kind byte, words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%c%d\r\n", kind, len(words))
	for _, word := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	return b.String()
}

var replies = map[string]string{
	"simple string":   "+OK\r\n",
	"empty simple":    "+\r\n",
	"error":           "-ERR no\r\n",
	"integer":         ":-12\r\n",
	"bulk":            "$5\r\nhe\r\no\r\n",
	"empty bulk":      "$0\r\n\r\n",
	"big bulk":        "$300000\r\n" + strings.Repeat("x", 300000) + "\r\n",
	"null bulk":       "$-1\r\n",
	"array":           "*3\r\n:1\r\n$1\r\na\r\n*1\r\n+b\r\n",
	"empty array":     "*0\r\n",
	"null array":      "*-1\r\n",
	"null":            "_\r\n",
	"double":          ",1.5e-3\r\n",
	"boolean":         "#t\r\n",
	"big number":      "(3492890328409238509324850943850943825024385\r\n",
	"bulk error":      "!5\r\nERR a\r\n",
	"verbatim":        "=8\r\ntxt:a\r\nb\r\n",
	"map":             "%2\r\n+a\r\n:1\r\n+b\r\n%1\r\n+c\r\n_\r\n",
	"set":             "~2\r\n+a\r\n+b\r\n",
	"push":            array('>', "message", "channel", "text"),
	"attribute":       "|1\r\n+ttl\r\n:3600\r\n$1\r\na\r\n",
	"inner attribute": "*2\r\n|1\r\n+ttl\r\n:3600\r\n+a\r\n+b\r\n",
	"deep":            strings.Repeat("*1\r\n", 10000) + "+x\r\n",
}

func TestReply(t *testing.T) {
	t.Parallel()
	for name, whole := range replies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := redistest.NewSplitter(strings.NewReader(whole + whole))
			for range 2 {
				if got, err := in.Reply(); string(got) != whole || err != nil {
					t.Fatalf("got %.80q, %v; want %.80q", got, err, whole)
				}
			}
			if _, err := in.Reply(); err != io.EOF {
				t.Errorf("at the end: got %v, want io.EOF", err)
			}
			in = redistest.NewSplitter(strings.NewReader(whole[:len(whole)-1]))
			if got, err := in.Reply(); err != io.ErrUnexpectedEOF {
				t.Errorf("cut short: got %.80q, %v; want io.ErrUnexpectedEOF", got, err)
			}
		})
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	first, second := array('*', "set", "k\r\n", ""), array('*', "PING")
	in := redistest.NewSplitter(strings.NewReader(first + second))
	cmd, raw, err := in.Command()
	if err != nil || string(raw) != first {
		t.Fatalf("got %q, %v; want %q", raw, err, first)
	}
	if got, want := cmd.String(), `SET "k\r\n" ""`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if cmd, _, err = in.Command(); cmd.Name != "PING" || len(cmd.Args) != 0 || err != nil {
		t.Errorf("got %v, %v; want PING", cmd, err)
	}
	if _, _, err := in.Command(); err != io.EOF {
		t.Errorf("at the end: got %v, want io.EOF", err)
	}
}

func TestNotRESP(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"GET / HTTP/1.1\r\n\r\n",
		"\r\n",
		"+OK\n",
		"$\r\n",
		"$?\r\n",
	} {
		if got, err := redistest.NewSplitter(strings.NewReader(in)).Reply(); !redistest.IsProtocol(err) {
			t.Errorf("reply %.40q: got %.40q, %v", in, got, err)
		}
	}
	for _, in := range []string{
		"PING\r\n",
		"*0\r\n",
		"*-1\r\n",
		"$4\r\nPING\r\n",
		"*1\r\n+PING\r\n",
		"*1\r\n$-1\r\n",
	} {
		if _, got, err := redistest.NewSplitter(strings.NewReader(in)).Command(); !redistest.IsProtocol(err) {
			t.Errorf("command %.40q: got %.40q, %v", in, got, err)
		}
	}
}
