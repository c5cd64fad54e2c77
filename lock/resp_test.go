package lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

func TestParseReply(t *testing.T) {
	t.Parallel()
	absent := lock.Reply{Absent: true}
	text := func(s string) lock.Reply { return lock.Reply{Text: []byte(s)} }
	for raw, want := range map[string]lock.Reply{
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
		got, err := lock.ParseReply([]byte(raw))
		if err != nil || !isSame(got, want) {
			t.Errorf("%q: %+v, %v, want %+v", raw, got, err, want)
		}
	}
}

func isSame(a, b lock.Reply) bool {
	return bytes.Equal(a.Text, b.Text) && a.Absent == b.Absent && a.Pair == b.Pair && a.Fence == b.Fence && a.Left == b.Left
}

func TestParseReplyOfAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"ERR", "ERR syntax error", "NOSCRIPT No matching script.", "LOADING", "READONLY x", "MOVED 1 a:1"} {
		for _, raw := range []string{"-" + text + "\r\n", "*2\r\n-" + text + "\r\n:1\r\n", "*2\r\n$-1\r\n-" + text + "\r\n"} {
			_, err := lock.ParseReply([]byte(raw))
			var reply redis.Error
			if !errors.As(err, &reply) || err.Error() != text || errors.Is(err, lock.ErrProtocol) {
				t.Errorf("%q: %v, want a redis.Error", raw, err)
			}
		}
	}
}

// notReplies are no RESP, or not what is ever asked for.
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

func TestParseReplyOfWhatIsNone(t *testing.T) {
	t.Parallel()
	for _, raw := range notReplies {
		if got, err := parseReply(t, []byte(raw)); !errors.Is(err, lock.ErrProtocol) {
			t.Errorf("%q: %+v, %v, want no reply", raw, got, err)
		}
	}
}

// parseReply says on which input the parser has panicked.
func parseReply(t *testing.T, raw []byte) (r lock.Reply, err error) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%q: panic: %v", raw, p)
			err = lock.ErrProtocol
		}
	}()
	return lock.ParseReply(raw)
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
		r, err := lock.ParseReply(raw[:len(raw):len(raw)])
		if !bytes.Equal(raw, before) {
			t.Errorf("%q has become %q", before, raw)
		}
		var reply redis.Error
		switch {
		case err != nil:
			if errors.Is(err, lock.ErrProtocol) == errors.As(err, &reply) {
				t.Errorf("%q: %v, want either the server's error or that it is no reply", raw, err)
			}
			return
		case !bytes.Contains(raw, r.Text):
			t.Errorf("%q: %q is no part of it", raw, r.Text)
		case r.Absent && len(r.Text) > 0:
			t.Errorf("%q: nothing, and %q", raw, r.Text)
		}
		for _, again := range encode(r) {
			if got, err := lock.ParseReply(again); err != nil || !isSame(got, r) {
				t.Errorf("%q is %+v, and that as %q is %+v, %v", raw, r, again, got, err)
			}
		}
		for n := range raw {
			if got, err := lock.ParseReply(raw[:n:n]); err == nil {
				t.Errorf("%q, cut: %+v, want no reply", raw[:n], got)
			}
		}
		if got, err := lock.ParseReply(append(before, '+')); err == nil {
			t.Errorf("%q and one byte more: %+v, want no reply", raw, got)
		}
		for i := range raw { // the text is a part of it, and no copy
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
func encode(r lock.Reply) (raws [][]byte) {
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

// refusing is a server that answers SET with an error as long as it is told to.
type refusing struct {
	client *redis.Client
	proxy  *redistest.Proxy
	left   atomic.Int64 // how often
}

func startRefusing(t *testing.T, reply string) *refusing {
	t.Helper()
	m, r := miniredis.RunT(t), &refusing{}
	m.Server().SetPreHook(func(peer *server.Peer, command string, _ ...string) bool {
		refuses := command == "SET" && r.left.Add(-1) >= 0
		if refuses {
			peer.WriteError(reply)
		}
		return refuses
	})
	r.proxy = redistest.NewProxy(t, m.Addr())
	r.client = r.proxy.Client(t)
	return r
}

// What passes is tried again, what does not is told. Of each try two commands arrive: the second one for go-redis to
// see the error.
//
// fault: LOADING, READONLY, OOM, NOAUTH
func TestErrorReplies(t *testing.T) {
	t.Parallel()
	for reply, passes := range map[string]bool{
		"LOADING Redis is loading the dataset in memory":                                   true,
		"READONLY You can't write against a read only replica.":                            true,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.": true,
		"CLUSTERDOWN The cluster is down":                                                  true,
		"TRYAGAIN Multiple keys request during rehashing of slot":                          true,
		"ERR max number of clients reached":                                                true,
		"OOM command not allowed when used memory > 'maxmemory'.":                          false,
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to.": false,
		"NOREPLICAS Not enough good replicas to write.":                                    false,
		"NOAUTH Authentication required.":                                                  false,
		"NOPERM this user has no permissions to run the 'set' command":                     false,
		"ERR unknown command 'set'":                                                        false,
		"WEIRD":                                                                            false,
	} {
		t.Run(strings.Fields(reply)[0]+" "+strings.Fields(reply + " x")[1], func(t *testing.T) {
			t.Parallel()
			r := startRefusing(t, reply)
			locker := newLocker(t, r.client)

			r.left.Store(4) // two tries
			_, ok, err := locker.TryAcquire(t.Context(), "k")
			switch {
			case passes && (!ok || err != nil):
				t.Errorf("for a while: %v, %v, want true, nil", ok, err)
			case !passes && (ok || !isReplyOf(err, reply)):
				t.Errorf("for a while: %v, %v, want false and what the server said", ok, err)
			}
			if want := map[bool]int64{true: -1, false: 2}[passes]; r.left.Load() != want {
				t.Errorf("after that %d more would be refused, want %d", r.left.Load(), want)
			}

			r.left.Store(1000)
			if _, ok, err := locker.TryAcquire(t.Context(), "other"); ok || !isReplyOf(err, reply) {
				t.Errorf("for ever: %v, %v, want false and what the server said", ok, err)
			}
			if n := 1000 - r.left.Load(); n > 8 {
				t.Errorf("sent %d times, want no more than four tries", n)
			}
		})
	}
}

// isReplyOf tells whether err is what go-redis makes of an error that a server has sent.
func isReplyOf(err error, reply string) bool {
	var e redis.Error
	return errors.As(err, &e) && strings.Contains(e.Error(), reply)
}

// A script that the server does not know is sent with its source at once: the error needs nobody else's look.
//
// fault: SCRIPT FLUSH
func TestUnknownScriptTakesOneMoreCommand(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p := redistest.NewProxy(t, b.Addr())
		lease := acquire(t, newLocker(t, p.Client(t)), "k")
		p.Reset()
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if got := p.Commands(); !slices.Equal(got, []string{"EVALSHA", "EVAL"}) {
			t.Errorf("sent %q", got)
		}
	})
}

// go-redis gives up each connection to a server that has become a replica.
//
// fault: READONLY
func TestReplicaIsLeft(t *testing.T) {
	t.Parallel()
	_, replica, _ := startReplicated(t)
	p := redistest.NewProxy(t, replica.Addr())
	var connections atomic.Int64
	client := p.Client(t, func(o *redis.Options) {
		o.OnConnect = func(context.Context, *redis.Conn) error { connections.Add(1); return nil }
	})
	locker := newLocker(t, client)
	if _, ok, err := locker.TryAcquire(t.Context(), "k"); ok || !redis.IsReadOnlyError(err) {
		t.Errorf("TryAcquire: %v, %v, want false, READONLY", ok, err)
	}
	if sent := int64(len(p.Commands())); sent != 8 || connections.Load() != sent/2 {
		t.Errorf("%d commands on %d connections, want 8 on 4: each try's second one ends its connection", sent, connections.Load())
	}
}

// fault: NOAUTH
func TestPasswordIsSet(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locker := newLocker(t, server.Client(t))
	lease := acquire(t, locker, "k")
	if err := server.Client(t).ConfigSet(t.Context(), "requirepass", "secret").Err(); err != nil {
		t.Fatal(err)
	}
	drop := server.Client(t, func(o *redis.Options) { o.Password = "secret" })
	if err := drop.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := locker.TryAcquire(t.Context(), "other"); ok || !redis.IsAuthError(err) {
		t.Errorf("TryAcquire: %v, %v, want false, NOAUTH", ok, err)
	}
	if err := drop.ConfigSet(t.Context(), "requirepass", "").Err(); err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("Release: %v", err)
	}
}
