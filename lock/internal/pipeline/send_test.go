package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/internal/redistest"
)

// wire is what some nodes get and answer: each command takes the next of the answers, and is answered by OK after them.
type wire struct {
	direct *redistest.Direct // nil for a Cluster

	mu      sync.Mutex
	answers []string // in RESP; guarded by mu, as all below
	sent    []string // the node, if there are several, and the command
}

func (w *wire) dial(_ context.Context, _, addr string) (net.Conn, error) {
	return &wireConn{wire: w, node: strings.TrimSuffix(addr, ":1")}, nil
}

// take returns what was sent since the last call.
func (w *wire) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := strings.Join(w.sent, ", ")
	w.sent = nil
	return sent
}

func (w *wire) answer(node string, args []string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch args[0] {
	case "hello", "client":
		return "-ERR unknown command\r\n"
	case "command": // a ClusterClient asks where in a command its key stands
		return "*1\r\n*6\r\n$3\r\nset\r\n:-3\r\n*0\r\n:1\r\n:1\r\n:1\r\n"
	}
	w.sent = append(w.sent, strings.TrimSpace(node+" "+strings.Join(args, " ")))
	switch {
	case len(w.answers) > 0:
	case args[0] == "wait":
		return ":1\r\n"
	default:
		return "+OK\r\n"
	}
	next := w.answers[0]
	w.answers = w.answers[1:]
	return next
}

// wireConn is a connection. It takes whole commands.
type wireConn struct {
	net.Conn // nil
	wire     *wire
	node     string
	mu       sync.Mutex
	unread   bytes.Buffer // guarded by mu
}

func (c *wireConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := strings.Split(string(p), "\r\n")
	for len(lines) > 1 {
		n, _ := strconv.Atoi(lines[0][1:])
		var args []string
		for i := range n {
			args = append(args, lines[2+2*i])
		}
		c.unread.WriteString(c.wire.answer(c.node, args))
		lines = lines[1+2*n:]
	}
	return len(p), nil
}

func (c *wireConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unread.Read(p)
}

func (*wireConn) Close() error                     { return nil }
func (*wireConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*wireConn) SetDeadline(time.Time) error      { return nil }
func (*wireConn) SetReadDeadline(time.Time) error  { return nil }
func (*wireConn) SetWriteDeadline(time.Time) error { return nil }

// onWire runs test in a bubble, with a pipeline to one node.
func onWire(t *testing.T, config Config, test func(t *testing.T, p *Pipeline, w *wire), answers ...string) {
	t.Helper()
	config.OpTimeout = opTimeout
	synctest.Test(t, func(t *testing.T) {
		w := &wire{answers: answers}
		w.direct = redistest.NewDirect(t, &redis.Options{Addr: ":1", Dialer: w.dial})
		group := background.NewGroup(context.Background())
		test(t, New(w.direct.Client, group, config), w)
		if err := group.Close(context.Background()); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * opTimeout) // for the timers of deadlines
	})
}

type valueKey struct{}

// describe returns a reply and an error as one text.
func describe(r *Reply, err error) string {
	switch {
	case err != nil:
		return "error " + err.Error()
	case r.Pair:
		return fmt.Sprintf("absent %t, %q, fence %q, left %d", r.Absent, r.Text, r.Fence, r.Left)
	case r.Absent:
		return "absent"
	}
	return strconv.Quote(string(r.Text))
}

// A script is sent by its digest, and by its source only after NOSCRIPT. A reply is of a kind that a command of ours returns,
// in RESP2 or RESP3.
func TestSend(t *testing.T) {
	t.Parallel()
	script := NewScript("return 1")
	digest := redis.NewScript("return 1").Hash()
	get := func(c *Call) (*Reply, error) { return c.Send("get", "k") }
	eval := func(c *Call) (*Reply, error) { return c.Eval(script, 1, "k", "a") }
	durable := func(c *Call) (*Reply, error) { return c.EvalDurable(script, 1, "k", "a") }
	byDigest, bySource := "evalsha "+digest+" 1 k a", "eval return 1 1 k a"
	unexpected := "error " + ErrProtocol.Error()
	for name, test := range map[string]struct {
		do      func(c *Call) (*Reply, error)
		answers []string
		sent    string
		want    string
	}{
		"by digest":                 {eval, []string{":1\r\n"}, byDigest, `"1"`},
		"by source":                 {eval, []string{"-NOSCRIPT no\r\n", ":1\r\n"}, byDigest + ", " + bySource, `"1"`},
		"not known twice":           {eval, []string{"-NOSCRIPT no\r\n", "-NOSCRIPT no\r\n"}, byDigest + ", " + bySource, "error NOSCRIPT no"},
		"a script that fails":       {eval, []string{"-OOM no\r\n"}, byDigest, "error OOM no"},
		"durable, without replicas": {durable, nil, byDigest, `"OK"`},

		"a text":                                {get, []string{"$1\r\nv\r\n"}, "get k", `"v"`},
		"a text of a status":                    {get, []string{"+v\r\n"}, "get k", `"v"`},
		"an empty text":                         {get, []string{"$0\r\n\r\n"}, "get k", `""`},
		"nothing":                               {get, []string{"$-1\r\n"}, "get k", "absent"},
		"nothing, RESP3":                        {get, []string{"_\r\n"}, "get k", "absent"},
		"a number":                              {get, []string{":7\r\n"}, "get k", `"7"`},
		"zero":                                  {get, []string{":0\r\n"}, "get k", `"0"`},
		"a fence":                               {get, []string{"*2\r\n$-1\r\n$1\r\n9\r\n"}, "get k", `absent true, "", fence "9", left 0`},
		"a fence, RESP3":                        {get, []string{"*2\r\n_\r\n$1\r\n9\r\n"}, "get k", `absent true, "", fence "9", left 0`},
		"a claim":                               {get, []string{"*2\r\n$1\r\nc\r\n:5\r\n"}, "get k", `absent false, "c", fence "", left 5`},
		"a claim without an end":                {get, []string{"*2\r\n$1\r\nc\r\n:-1\r\n"}, "get k", `absent false, "c", fence "", left -1`},
		"another pair":                          {get, []string{"*2\r\n:1\r\n:5\r\n"}, "get k", unexpected + ": a pair of int64 and int64"},
		"a pair without an end":                 {get, []string{"*2\r\n$1\r\nc\r\n$-1\r\n"}, "get k", unexpected + ": a pair of string and <nil>"},
		"an error in a pair":                    {get, []string{"*2\r\n-ERR no\r\n:5\r\n"}, "get k", unexpected + ": a pair of proto.RedisError and int64"},
		"another list":                          {get, []string{"*1\r\n:5\r\n"}, "get k", unexpected + ": a []interface {}"},
		"another kind, RESP3":                   {get, []string{"#t\r\n"}, "get k", unexpected + ": a bool"},
		"an error":                              {get, []string{"-ERR syntax error\r\n"}, "get k", "error ERR syntax error"},
		"a redirection, which go-redis follows": {get, []string{"-MOVED 1 c:1\r\n"}, "get k", "error MOVED 1 c:1"},
		"an error in a script, 6":               {get, []string{"-ERR Error running script (call to f_1): @x:1: -OOM b\r\n"}, "get k", "error OOM b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onWire(t, Config{}, func(t *testing.T, p *Pipeline, w *wire) {
				c := &Call{Pipeline: p, Context: t.Context(), Key: "k", Start: time.Now()}
				got := describe(test.do(c))
				if sent := w.take(); got != test.want || sent != test.sent {
					t.Errorf("%s after %s, want %s after %s", got, sent, test.want, test.sent)
				}
			}, test.answers...)
		})
	}
}

// With replicas, a WAIT follows each durable command, or batch of them. Too few replicas are an error beside the reply.
func TestWait(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		":2\r\n": "", ":3\r\n": "",
		":1\r\n":       "lock: not replicated: 1 of 2 have it",
		"-ERR why\r\n": "lock: not replicated: ERR why",
	} {
		config := Config{Replicas: 2, ReplicaTimeout: 70 * ms}
		onWire(t, config, func(t *testing.T, p *Pipeline, w *wire) {
			c := &Call{Pipeline: p, Context: t.Context(), Key: "k", Start: time.Now()}
			r, err := c.SendDurable("set", "k", "v")
			if err != nil || string(r.Text) != "v" {
				t.Fatalf("%q: %v", answer, err)
			}
			got := ""
			if r.WaitErr != nil {
				got = r.WaitErr.Error()
			}
			if got != want || (want != "") != errors.Is(r.WaitErr, ErrNotReplicated) {
				t.Errorf("%q: %q, want %q", answer, got, want)
			}
			if sent := w.take(); sent != "set k v, wait 2 70" {
				t.Errorf("sent %s", sent)
			}
			if _, err := c.Send("get", "k"); err != nil || w.take() != "get k" {
				t.Errorf("a command that is not durable: %v", err)
			}
			if _, err := c.EvalDurable(NewScript("s"), 1, "k"); err != nil || !strings.HasSuffix(w.take(), "1 k, wait 2 70") {
				t.Errorf("a durable script: %v", err)
			}
		}, "+v\r\n", answer)
	}
}

// A command that goes alone carries the values of its caller's context, a batch those of the base context. Each ends when
// no caller waits any more, not when one of them gives up.
func TestContexts(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, p *Pipeline, n *fakeNode) {
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), valueKey{}, "the caller's"), ms)
		defer cancel()
		for range 5 {
			for commandsOf, want := range map[int]string{1: "the caller's", 2: "the base's"} {
				p.exec(p.contexts.forStart(time.Now()), commands(ctx, p, commandsOf))
				deadline, _ := n.ctx.Deadline()
				if left := time.Until(deadline); n.ctx.Value(valueKey{}) != want || left < opTimeout || left > opTimeout*11/10 {
					t.Errorf("%d: the value %v, and %v left, want %s", commandsOf, n.ctx.Value(valueKey{}), left, want)
				}
			}
			time.Sleep(opTimeout / 30)
		}
		if first, again := p.contexts.forStart(time.Now()), p.contexts.forStart(time.Now()); first != again {
			t.Error("each batch has a context of its own")
		}
	})
}

// commands returns n that no caller waits for.
func commands(ctx context.Context, p *Pipeline, n int) (all []*command) {
	for range n {
		c := (&Call{Pipeline: p, Context: ctx, Key: "k"}).command(false, nil, "get", "k")
		c.Context = p.contexts.forStart(time.Now())
		all = append(all, c)
	}
	return all
}

// The result of a command is what its own reply says: a whole reply counts although the connection broke after it, and a
// command without a reply has the error of its batch.
func TestSetResult(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		reply      any
		err, batch error
		want       string
	}{
		"a reply":                        {"v", nil, nil, `"v"`},
		"a reply in a batch that broke":  {"v", nil, broken, `"v"`},
		"a reply before the end":         {"v", io.EOF, io.EOF, `"v"`},
		"a pair before the end":          {[]any{nil, "9"}, io.EOF, io.EOF, `absent true, "", fence "9", left 0`},
		"nothing":                        {nil, redis.Nil, nil, "absent"},
		"nothing, in a batch that broke": {nil, redis.Nil, io.EOF, "absent"},
		"zero, beside nothing":           {int64(0), nil, redis.Nil, `"0"`},
		"half of a text":                 {"", io.EOF, io.EOF, "error EOF"},
		"half of a number":               {int64(0), io.EOF, io.EOF, "error EOF"},
		"none, and its error":            {nil, io.EOF, broken, "error EOF"},
		"none, and the error of a batch": {nil, nil, broken, "error broken"},
		"none at all":                    {nil, nil, nil, "error " + errNoReply.Error()},
	} {
		c := &command{}
		cmd := newCmder(c)
		cmd.SetVal(test.reply)
		cmd.SetErr(test.err)
		c.setResult(cmd, test.batch)
		if got := describe(&c.reply, c.err); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		if !redis.Cmder(cmd).NoRetry() {
			t.Errorf("%s: go-redis may send it again", name)
		}
	}
}

// fault: READONLY. expected: go-redis closes each connection to a server that has become a replica.
func TestReplicaIsLeft(t *testing.T) {
	t.Parallel()
	const refusal = "-READONLY You can't write against a read only replica.\r\n"
	w := &wire{answers: []string{refusal, refusal, refusal}}
	dials := 0
	client := redis.NewClient(&redis.Options{
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials++
			return w.dial(ctx, network, addr)
		},
		Protocol: 2, DisableIdentity: true,
	})
	p := New(client, background.NewGroup(t.Context()), Config{OpTimeout: time.Minute})
	c := &Call{Pipeline: p, Context: t.Context(), Key: "k"}
	r := c.Do(func() (*Reply, error) { return c.Send("set", "k") })
	if got := describe(r.Reply, r.Err); got != `"OK"` || dials != 4 {
		t.Errorf("%s on %d connections, want 4", got, dials)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}

// A Cluster has a queue for each node and kind of command, and the WAIT goes to the node that has the key.
func TestCluster(t *testing.T) {
	t.Parallel()
	w, slots := &wire{}, slotsOf("a:1", "b:1")
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Dialer: w.dial, Protocol: 2, DisableIdentity: true, MaxRedirects: -1,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return slots, nil },
	})
	defer func() { _ = client.Close() }()
	group := background.NewGroup(context.Background())
	p := New(client, group, Config{OpTimeout: time.Minute, Replicas: 1, ReplicaTimeout: time.Second})
	keys := [2]string{"b", "a"} // whose slots, 3300 and 15495, are on the nodes a and b
	if got := p.Node(keys[0]); got != any(&p.router.one) {
		t.Error("a queue for a node that is not known yet")
	}
	call := func(key string, args ...any) string {
		c := &Call{Pipeline: p, Context: t.Context(), Key: key}
		r := c.Do(func() (*Reply, error) { return c.SendDurable(args...) })
		return describe(r.Reply, r.Err)
	}
	for i, node := range []string{"a", "b"} {
		if got := call(keys[i], "set", keys[i], "v"); got != `"OK"` {
			t.Errorf("on %s: %s", node, got)
		}
		if sent, want := w.take(), fmt.Sprintf("%s set %s v, %s wait 1 1000", node, keys[i], node); sent != want {
			t.Errorf("sent %s, want %s", sent, want)
		}
	}
	if p.Node(keys[0]) == p.Node(keys[1]) || p.Node(keys[0]) != p.Node("{b}2") || len(p.router.nodes()) != 3 {
		t.Errorf("%d nodes", len(p.router.nodes()))
	}
	plain, durable := commands(t.Context(), p, 1)[0], (&Call{Pipeline: p, Key: "k"}).command(true, nil, "get")
	if n := p.router.node("k"); p.router.queue(plain) != &n.plain || p.router.queue(durable) != &n.durable {
		t.Error("durable commands and others share a queue")
	}

	const other = "10.0.0.3" // go-redis looks up a name that redirects
	for _, redirection := range []string{"MOVED", "ASK"} {
		w.answers = []string{"-" + redirection + " 3300 " + other + ":1\r\n", ":0\r\n", "+OK\r\n", "+moved\r\n", ":1\r\n"}
		if got := call(keys[0], "set", "b", "v"); got != `"moved"` {
			t.Errorf("%s: %s", redirection, got)
		}
		if sent := w.take(); sent != "a set b v, a wait 1 1000, "+other+" asking, "+other+" set b v, "+other+" wait 1 1000" {
			t.Errorf("%s: sent %s", redirection, sent)
		}
	}
	if stats := p.Stats(); stats.Commands != 6 || stats.Batches != 6 {
		t.Errorf("%+v, want 6 durable commands", stats)
	}
	if err := group.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// slotsOf shares the slots between two nodes.
func slotsOf(first, second string) []redis.ClusterSlot {
	return []redis.ClusterSlot{
		{End: 8191, Nodes: []redis.ClusterNode{{Addr: first}}},
		{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: second}}},
	}
}

func TestWithBrackets(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"a:1": "a:1", "10.0.0.1:6379": "10.0.0.1:6379", "::1:6379": "[::1]:6379", "[::1]:6379": "[::1]:6379", ":1": ":1", "": ":",
	} {
		if got := withBrackets(addr); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

// What is printed of an argument is its length.
func TestBytes(t *testing.T) {
	t.Parallel()
	b := Bytes("secret")
	wire, err := b.MarshalBinary()
	if err != nil || string(wire) != "secret" {
		t.Errorf("to Redis: %q, %v", wire, err)
	}
	encoded, err := json.Marshal(&b)
	if err != nil {
		t.Error(err)
	}
	for _, got := range []string{fmt.Sprintf("%v", &b), fmt.Sprintf("%x", &b), fmt.Sprintf("%#v", &b), b.String(), strings.Trim(string(encoded), `"`)} {
		if got != "6 bytes" {
			t.Errorf("prints %s", got)
		}
	}
	c := &command{args: []any{"set", []byte("12345"), &b, 7}}
	if got := c.size(); got != 3+5+6 {
		t.Errorf("%d bytes of arguments", got)
	}
}

// The first try may have arrived. So a Call that is canceled later is unsure, whether its second try was in the queue, was
// never sent because its pause took too long, or was to be sent.
func TestUnsure(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		first  error
		cancel time.Duration // after which the caller cancels, 0 for never
		second func(c *Call) error
		want   string
	}{
		"then canceled in the queue": {broken, 40 * ms, func(c *Call) error {
			c.Pipeline.router.one.plain.occupy()
			_, err := c.Send("get", "k")
			return err
		}, "unsure true: the client has gone: broken"},
		"then canceled in the pause": {broken, 1, nil, "unsure true: the client has gone: broken"},
		"not sent, then canceled":    {redis.ErrPoolTimeout, 1, nil, "unsure false: the client has gone: " + redis.ErrPoolTimeout.Error()},
		"then answered":              {broken, 0, func(*Call) error { return nil }, "unsure true: nil"},
		"then refused":               {broken, 0, func(*Call) error { return redis.ErrClosed }, "unsure true: " + redis.ErrClosed.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onWire(t, Config{}, func(t *testing.T, p *Pipeline, w *wire) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if test.cancel > 0 {
					time.AfterFunc(test.cancel, func() { cancel(errors.New("the client has gone")) })
				}
				tries := 0
				c := &Call{Pipeline: p, Context: ctx, Key: "k"}
				r := c.Do(func() (*Reply, error) {
					if tries++; tries == 1 {
						if test.second == nil {
							time.Sleep(ms) // until the caller has canceled
						}
						return nil, test.first
					}
					return &Reply{}, test.second(c)
				})
				got := "nil"
				if r.Err != nil {
					got = r.Err.Error()
				}
				if isGivenUp := p.Stats().GivenUp == 1; isGivenUp != (r.Err != nil) {
					t.Errorf("counted as given up: %t", isGivenUp)
				}
				if got = fmt.Sprintf("unsure %t: %s", r.Unsure, got); got != test.want {
					t.Errorf("%s, want %s", got, test.want)
				}
				if sent := w.take(); sent != "" {
					t.Errorf("sent %s", sent)
				}
			})
		})
	}
}

// occupy fills the queue with batches that stay in flight.
func (q *queue) occupy() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pacer.completed = time.Now() // so that no probe is due
	q.unanswered = fewInFlight
	for range maxInFlight {
		q.inFlight = append(q.inFlight, &batch{start: time.Now()})
	}
}

// Stats counts what is queued and in flight, and what has been.
func TestStats(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, p *Pipeline, n *fakeNode) {
		want := func(want Stats) {
			t.Helper()
			synctest.Wait()
			if got := p.Stats(); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		n.takes = func([]string) time.Duration { return 10 * ms }
		want(Stats{})
		for range fewInFlight + 2 {
			start(p, t.Context(), "a", nil)
		}
		ctx, cancel := context.WithCancel(t.Context())
		canceled := start(p, ctx, "canceled", nil)
		want(Stats{Queued: 3, InFlight: fewInFlight, Batches: fewInFlight, Commands: fewInFlight})
		cancel()
		_ = canceled()
		want(Stats{Queued: 2, InFlight: fewInFlight, Batches: fewInFlight, Commands: fewInFlight, GivenUp: 1})
		time.Sleep(100 * ms)
		want(Stats{Batches: fewInFlight + 1, Commands: fewInFlight + 2, GivenUp: 1})
		n.err = io.EOF
		_ = start(p, t.Context(), "b", nil)()
		want(Stats{Batches: fewInFlight + 5, Commands: fewInFlight + 6, GivenUp: 2, Retries: maxTries - 1})
	})
}

// Close of the group waits for a command whose caller has gone, and for its late result.
func TestGroupWaitsForWorkers(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, p *Pipeline, n *fakeNode) {
		n.takes = func([]string) time.Duration { return 10 * ms }
		ctx, cancel := context.WithCancel(t.Context())
		late := make(lateResults, 1)
		r := start(p, ctx, "a", late)
		cancel()
		if r := r(); !r.Unsure {
			t.Error("the command was sent, and its caller does not know that")
		}
		begin := time.Now()
		if err := p.group.Close(context.Background()); err != nil || time.Since(begin) != 10*ms || len(late) != 1 {
			t.Errorf("Close: %v after %v, %d late results", err, time.Since(begin), len(late))
		}
	})
}
