package redistest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
)

// eachProxied runs test with a proxy in front of each kind of server.
func eachProxied(t *testing.T, test func(t *testing.T, b redistest.Backend, p *redistest.Proxy)) {
	t.Helper()
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		test(t, b, redistest.NewProxy(t, b.Addr()))
	})
}

func TestProxyIsTransparent(t *testing.T) {
	eachProxied(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy) {
		big := strings.Repeat("\r\n$", 1<<20)
		for _, protocol := range []int{2, 3} {
			client := p.Client(t, func(o *redis.Options) { o.Protocol = protocol })
			if err := client.Set(within(t), "key", big, 0).Err(); err != nil {
				t.Fatal(err)
			}
			if got, err := client.Get(within(t), "key").Result(); got != big || err != nil {
				t.Errorf("RESP%d: got %d bytes, %v; want %d", protocol, len(got), err, len(big))
			}
			if err := client.HSet(within(t), "hash", "field", "value").Err(); err != nil {
				t.Fatal(err)
			}
			if got, err := client.HGetAll(within(t), "hash").Result(); fmt.Sprint(got) != "map[field:value]" || err != nil {
				t.Errorf("RESP%d: got %v, %v", protocol, got, err)
			}
		}
	})
}

// DEBUG PROTOCOL makes Redis send each type of its protocol.
func TestProxyPassesEveryType(t *testing.T) {
	t.Parallel()
	redistest.Start(t).Since(t, "7.0", "enable-debug-command")
	server := redistest.Start(t, "--enable-debug-command", "yes")
	p := redistest.NewProxy(t, server.Addr())
	for _, hello := range []string{"HELLO 2", "HELLO 3"} {
		direct, proxied := dial(t, server.Addr()), dial(t, p.Addr())
		direct.send(t, command(hello))
		proxied.send(t, command(hello))
		direct.read(t)
		proxied.read(t)
		for _, kind := range strings.Fields("string integer double null array set map attrib push verbatim true false bignum") {
			answer := func(c *conn) (frames []string) {
				c.send(t, command("DEBUG PROTOCOL "+kind)+command("PING"))
				for len(frames) == 0 || frames[len(frames)-1] != "+PONG\r\n" {
					frames = append(frames, c.read(t))
				}
				return frames
			}
			if got, want := answer(proxied), answer(direct); !slices.Equal(got, want) {
				t.Errorf("%s, %s: got %q, want %q", hello, kind, got, want)
			}
		}
	}
}

func TestCounting(t *testing.T) {
	eachProxied(t, func(t *testing.T, _ redistest.Backend, p *redistest.Proxy) {
		client := p.Client(t)
		check := func(what string, rounds int, names ...string) {
			t.Helper()
			if got := p.Commands(); !slices.Equal(got, names) {
				t.Errorf("%s: got %q, want %q", what, got, names)
			}
			if got := p.RoundTrips(); got != rounds {
				t.Errorf("%s: got %d round trips, want %d", what, got, rounds)
			}
			p.Reset()
		}
		check("nothing", 0)
		client.Ping(within(t))
		check("set-up", 0)
		client.Set(within(t), "key", "value", 0)
		client.Get(within(t), "key")
		check("two commands", 2, "SET", "GET")
		_, err := client.Pipelined(within(t), func(pipe redis.Pipeliner) error {
			for range 3 {
				pipe.Incr(within(t), "n")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		check("a pipeline", 1, "INCR", "INCR", "INCR")
		client.Get(within(t), "key")
		check("once more", 1, "GET")

		other := p.Client(t)
		other.Get(within(t), "key")
		client.Get(within(t), "key")
		check("two connections", 2, "GET", "GET")
	})
}

func TestBlackHole(t *testing.T) {
	eachProxied(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy) {
		client := ready(t, p)
		old := dial(t, p.Addr())
		old.send(t, command("PING"))
		old.read(t)

		p.BlackHole()
		old.send(t, command("SET old value"))
		if err := client.Set(soon(t), "key", "value", 0).Err(); !isTimeout(err) {
			t.Errorf("over an old connection: got %v, want a timeout", err)
		}
		if err := client.Set(soon(t), "key", "value", 0).Err(); !isTimeout(err) {
			t.Errorf("over a new connection: got %v, want a timeout", err)
		}

		p.Heal()
		if got, err := old.in.Reply(); err == nil || isTimeout(err) {
			t.Errorf("healed, the old connection: got %q, %v; want it closed", got, err)
		}
		if err := client.Ping(within(t)).Err(); err != nil {
			t.Errorf("healed, a new connection: %v", err)
		}
		if got := b.Keys(t); len(got) != 0 {
			t.Errorf("the server has %q", got)
		}
	})
}

// The server does not learn it either: it keeps the blocked client.
func TestBlackHoleHidesTheClosedConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := redistest.NewProxy(t, server.Addr())
	c := dial(t, p.Addr())
	c.send(t, command("CLIENT SETNAME lost"))
	c.read(t)
	p.BlackHole()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	connected := func() bool {
		list, err := server.Client(t).ClientList(within(t)).Result()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(list, "name=lost")
	}
	if !connected() {
		t.Error("the server has dropped the client")
	}
	p.Heal()
	for deadline := time.Now().Add(20 * time.Second); connected(); {
		if time.Now().After(deadline) {
			t.Fatal("healed, but the server keeps the client")
		}
	}
}

func TestTargetIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := redistest.NewProxy(t, server.Addr())
	client := ready(t, p)
	server.Kill(t)
	for range 2 { // first a connection that breaks, then one that is refused
		if err := client.Ping(within(t)).Err(); err == nil || isTimeout(err) {
			t.Errorf("got %v, want a closed connection", err)
		}
	}
	server.Restart(t)
	if err := client.Ping(within(t)).Err(); err != nil {
		t.Errorf("restarted: %v", err)
	}
}

func TestGarbageClosesTheConnection(t *testing.T) {
	eachProxied(t, func(t *testing.T, _ redistest.Backend, p *redistest.Proxy) {
		c := dial(t, p.Addr())
		c.send(t, "GET / HTTP/1.1\r\n\r\n")
		if got, err := c.in.Reply(); err == nil || isTimeout(err) {
			t.Errorf("got %q, %v; want the end", got, err)
		}
	})
}
