package pipeline_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/pipeline"
)

func TestParseReply(t *testing.T) {
	t.Parallel()
	absent := pipeline.Reply{Absent: true}
	text := func(s string) pipeline.Reply { return pipeline.Reply{Text: []byte(s)} }
	for raw, want := range map[string]pipeline.Reply{
		"$-1\r\n":                   absent,
		"_\r\n":                     absent,
		"+OK\r\n":                   text("OK"),
		"+\r\n":                     text(""),
		"$0\r\n\r\n":                text(""),
		"$1\r\na\r\n":               text("a"),
		"$4\r\n\r\n\r\n\r\n":        text("\r\n\r\n"),
		"$5\r\n$1\r\na\r\n":         text("$1\r\na"),
		"*2\r\n$-1\r\n$2\r\n17\r\n": {Pair: true, Absent: true, Fence: "17"},
		"*2\r\n_\r\n$2\r\n17\r\n":   {Pair: true, Absent: true, Fence: "17"},
		"*2\r\n$-1\r\n$0\r\n\r\n":   {Pair: true, Absent: true},
		"*2\r\n$1\r\nh\r\n:500\r\n": {Pair: true, Text: []byte("h"), Left: 500},
		"*2\r\n$1\r\nh\r\n:-1\r\n":  {Pair: true, Text: []byte("h"), Left: -1},
	} {
		got, err := pipeline.ParseReply([]byte(raw))
		if err != nil || !isSame(got, want) {
			t.Errorf("%q: %+v, %v, want %+v", raw, got, err, want)
		}
	}
}

func isSame(a, b pipeline.Reply) bool {
	return bytes.Equal(a.Text, b.Text) && a.Absent == b.Absent && a.Pair == b.Pair && a.Fence == b.Fence && a.Left == b.Left
}

func TestParseReplyError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"ERR", "ERR syntax error", "NOSCRIPT No matching script.", "LOADING", "READONLY x", "MOVED 1 a:1"} {
		for _, raw := range []string{"-" + text + "\r\n", "*2\r\n-" + text + "\r\n:1\r\n", "*2\r\n$-1\r\n-" + text + "\r\n"} {
			_, err := pipeline.ParseReply([]byte(raw))
			var reply redis.Error
			if !errors.As(err, &reply) || err.Error() != text || errors.Is(err, pipeline.ErrProtocol) {
				t.Errorf("%q: %v, want a redis.Error", raw, err)
			}
		}
	}
}

// notReplies are not RESP, or not of a kind that a command of ours returns.
var notReplies = []string{
	"", "\r\n", "\r", "\n", "x", "x\r\n", "OK\r\n", "+OK", "+OK\r", "+OK\n", "-ERR", ":x\r\n", ":\r\n",
	":9223372036854775808\r\n",
	"$", "$\r\n", "$x\r\n", "$-2\r\n", "$-9223372036854775808\r\n", "$5\r\nabc\r\n", "$3\r\nabc", "$3\r\nabc\r", "$3\r\nabcde",
	"$3\r\nabcd\r\n", "$0\r\n", "$0\r\n\r", "$1\r\n\r\n", "$3\r\nabc\r\n+more\r\n", "_\r\n_\r\n",
	"$2147483647\r\n", "$4294967296\r\na\r\n", "$9223372036854775805\r\na\r\n", "$9223372036854775806\r\na\r\n",
	"$9223372036854775807\r\na\r\n", "$9223372036854775808\r\na\r\n", "$99999999999999999999\r\na\r\n",
	"*", "*\r\n", "*-1\r\n", "*0\r\n", "*1\r\n:1\r\n", "*3\r\n:1\r\n:1\r\n:1\r\n", "*2147483647\r\n", "*9223372036854775807\r\n",
	"*2", "*2\r\n", "*2\r\n:1\r\n", "*2\r\n$-1\r\n", "*2\r\n:1\r\n:1\r\n:1\r\n", "*2\r\n*2\r\n:1\r\n:1\r\n:1\r\n",
	"*2\r\n:1\r\n*2\r\n:1\r\n:1\r\n", "*2\r\n$9223372036854775807\r\n:1\r\n",
	"%1\r\n+a\r\n+b\r\n", "~1\r\n+a\r\n", ">1\r\n+a\r\n", "|1\r\n+a\r\n+b\r\n+c\r\n", "=5\r\ntxt:a\r\n", "(1\r\n", "$?\r\n",
}

func TestParseReplyRejects(t *testing.T) {
	t.Parallel()
	for _, raw := range notReplies {
		if got, err := parseReply(t, []byte(raw)); !errors.Is(err, pipeline.ErrProtocol) {
			t.Errorf("%q: %+v, %v, want no reply", raw, got, err)
		}
	}
}

// parseReply reports the input on which the parser panics.
func parseReply(t *testing.T, raw []byte) (r pipeline.Reply, err error) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%q: panic: %v", raw, p)
			err = pipeline.ErrProtocol
		}
	}()
	return pipeline.ParseReply(raw)
}

func FuzzReply(f *testing.F) {
	for _, raw := range append(slices.Clone(notReplies),
		"$-1\r\n", "_\r\n", "+OK\r\n", "+\r\n", "$0\r\n\r\n", "$4\r\n\r\n\r\n\r\n", ":1\r\n",
		"*2\r\n$-1\r\n$2\r\n17\r\n", "*2\r\n_\r\n$2\r\n17\r\n", "*2\r\n$1\r\nh\r\n:500\r\n", "*2\r\n$1\r\nh\r\n:-1\r\n",
		"-ERR syntax error\r\n", "*2\r\n-ERR\r\n:1\r\n",
	) {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		r, err := pipeline.ParseReply(raw[:len(raw):len(raw)])
		if !bytes.Equal(raw, before) {
			t.Errorf("%q has become %q", before, raw)
		}
		var reply redis.Error
		switch {
		case err != nil:
			if errors.Is(err, pipeline.ErrProtocol) == errors.As(err, &reply) {
				t.Errorf("%q: %v, want either the server's error or that it is no reply", raw, err)
			}
			return
		case !bytes.Contains(raw, r.Text):
			t.Errorf("%q: %q is no part of it", raw, r.Text)
		case r.Absent && len(r.Text) > 0:
			t.Errorf("%q: nothing, and %q", raw, r.Text)
		}
		for _, again := range encode(r) {
			if got, err := pipeline.ParseReply(again); err != nil || !isSame(got, r) {
				t.Errorf("%q is %+v, and that as %q is %+v, %v", raw, r, again, got, err)
			}
		}
		for n := range raw {
			if got, err := pipeline.ParseReply(raw[:n:n]); err == nil {
				t.Errorf("%q, cut: %+v, want no reply", raw[:n], got)
			}
		}
		if got, err := pipeline.ParseReply(append(before, '+')); err == nil {
			t.Errorf("%q and one byte more: %+v, want no reply", raw, got)
		}
		for i := range raw { // the text is a slice of raw, not a copy
			raw[i] ^= 0xff
		}
		for i := range r.Text {
			r.Text[i] ^= 0xff
		}
		if !bytes.Contains(before, r.Text) {
			t.Errorf("%q: the text is a copy", before)
		}
	})
}

// encode returns r as a server that speaks RESP2 writes it, and one that speaks RESP3.
func encode(r pipeline.Reply) (raws [][]byte) {
	bulk := func(text []byte) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }
	for _, null := range []string{"$-1\r\n", "_\r\n"} {
		raw := bulk(r.Text)
		if r.Absent {
			raw = null
		}
		switch {
		case r.Pair && r.Fence != "":
			raw = "*2\r\n" + raw + bulk([]byte(r.Fence))
		case r.Pair:
			raw = "*2\r\n" + raw + fmt.Sprintf(":%d\r\n", r.Left)
		}
		raws = append(raws, []byte(raw))
	}
	return raws
}
