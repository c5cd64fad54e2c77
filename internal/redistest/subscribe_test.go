package redistest_test

import (
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
)

// The proxy matches replies to commands even if messages of a subscription arrive between them. The test needs a real
// server: miniredis publishes in the background, in no fixed order relative to replies.
func TestSubscriptions(t *testing.T) {
	t.Parallel()
	for _, hello := range []string{"HELLO 2", "HELLO 3"} {
		t.Run(hello, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := redistest.NewProxy(t, server.Addr())
			c := dial(t, p.Addr())
			c.send(t, command(hello))
			c.read(t)
			expect := func(want string) {
				t.Helper()
				if got := c.read(t); !strings.Contains(got, want) {
					t.Errorf("got %q, want %s", got, want)
				}
			}
			publish := func() {
				t.Helper()
				if n, err := server.Client(t).Publish(within(t), "a", "text").Result(); n != 1 || err != nil {
					t.Fatalf("got %d subscribers, %v", n, err)
				}
			}
			c.send(t, command("SUBSCRIBE a b"))
			expect("subscribe")
			expect("subscribe")
			publish()
			expect("text")

			// A message precedes the held replies to UNSUBSCRIBE.
			request := p.HoldRequest(redistest.Named("UNSUBSCRIBE"))
			replies := p.HoldReply(redistest.Named("UNSUBSCRIBE"))
			c.send(t, command("UNSUBSCRIBE a b"))
			request.Wait(t)
			publish()
			request.Lift()
			replies.Wait(t)
			expect("text")
			replies.Lift()
			expect("unsubscribe")
			expect("unsubscribe")

			dropped := p.DropReply(redistest.Named("GET"))
			c.send(t, command("SET key value"))
			expect("+OK")
			c.send(t, command("GET key"))
			if got, err := c.in.Reply(); err == nil {
				t.Errorf("got %q, want the end", got)
			}
			dropped.Wait(t)
		})
	}
}

func TestDropReplyOfSubscribe(t *testing.T) {
	eachProxied(t, func(t *testing.T, _ redistest.Backend, p *redistest.Proxy) {
		rule := p.DropReply(redistest.Named("SUBSCRIBE"))
		c := dial(t, p.Addr())
		c.send(t, command("SUBSCRIBE a"))
		if got, err := c.in.Reply(); err == nil {
			t.Errorf("got %q, want the end", got)
		}
		rule.Wait(t)
	})
}
