package redistest_test

import (
	"fmt"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestCutBefore(t *testing.T) {
	eachProxied(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy) {
		client := ready(t, p)
		rule := p.CutBefore(redistest.Nth(1, redistest.Named("set")))
		if err := client.Set(within(t), "key", "value", 0).Err(); err == nil || isTimeout(err) {
			t.Errorf("got %v, want a closed connection", err)
		}
		if got, want := rule.Wait(t).String(), `SET "key" "value"`; got != want {
			t.Errorf("cut before %s, want %s", got, want)
		}
		if got := b.Keys(t); len(got) != 0 {
			t.Errorf("the command has reached the server: %q", got)
		}
		if got := p.Commands(); len(got) != 0 {
			t.Errorf("forwarded: %q", got)
		}
		if err := client.Set(within(t), "key", "value", 0).Err(); err != nil {
			t.Errorf("the next one: %v", err)
		}
		if got := rule.Hits(); got != 1 {
			t.Errorf("got %d hits, want 1", got)
		}
	})
}

func TestDropReply(t *testing.T) {
	eachProxied(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy) {
		client := ready(t, p)
		rule := p.DropReply(redistest.Named("SET"))
		for n := range 2 {
			if err := client.Set(within(t), fmt.Sprint("key", n), "value", 0).Err(); err == nil || isTimeout(err) {
				t.Errorf("got %v, want a closed connection", err)
			}
			rule.Wait(t)
		}
		if got, want := fmt.Sprint(b.Keys(t)), "[key0 key1]"; got != want {
			t.Errorf("the server has %s, want %s", got, want)
		}
		rule.Lift()
		if err := client.Set(within(t), "key2", "value", 0).Err(); err != nil {
			t.Errorf("lifted: %v", err)
		}
		if got := rule.Hits(); got != 2 {
			t.Errorf("got %d hits, want 2", got)
		}
	})
}

// The reply to the second command of a pipeline is lost. The first reply arrives, and the server has executed all
// commands.
func TestDropReplyInAPipeline(t *testing.T) {
	eachProxied(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy) {
		rule := p.DropReply(redistest.Nth(2, redistest.Any()))
		c := dial(t, p.Addr())
		c.send(t, command("PING")+command("SET a 1")+command("SET b 2")+command("SET c 3"))
		if got := c.read(t) + c.read(t); got != "+PONG\r\n+OK\r\n" {
			t.Errorf("got %q", got)
		}
		if got, err := c.in.Reply(); err == nil {
			t.Errorf("got %q, want the end", got)
		}
		if got, want := rule.Wait(t).String(), `SET "b" "2"`; got != want {
			t.Errorf("dropped the reply to %s, want %s", got, want)
		}
		if got, ok := b.Raw(t, "b"); got != "2" || !ok {
			t.Errorf("got %q, %t", got, ok)
		}
	})
}

func TestSwallowReply(t *testing.T) {
	eachProxied(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy) {
		client := ready(t, p)
		rule := p.SwallowReply(redistest.Named("SET"))
		result := make(chan error, 1)
		go func() { result <- client.Set(within(t), "key", "value", 0).Err() }()
		rule.Wait(t)
		if got, ok := b.Raw(t, "key"); got != "value" || !ok {
			t.Errorf("the server has %q, %t", got, ok)
		}
		select {
		case err := <-result:
			t.Errorf("the client got a reply: %v", err)
		default:
		}
		p.Heal()
		if err := <-result; err == nil || isTimeout(err) {
			t.Errorf("healed: got %v, want a closed connection", err)
		}
		rule.Lift()
		if err := client.Set(within(t), "key", "value", 0).Err(); err != nil {
			t.Errorf("lifted: %v", err)
		}
	})
}

func TestHoldRequest(t *testing.T) {
	eachProxied(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy) {
		client := ready(t, p)
		rule := p.HoldRequest(redistest.Named("SET"))
		result := make(chan error, 1)
		go func() { result <- client.Set(within(t), "key", "value", 0).Err() }()
		rule.Wait(t)
		if got := b.Keys(t); len(got) != 0 {
			t.Errorf("held, and the server has %q", got)
		}
		rule.Lift()
		if err := <-result; err != nil {
			t.Errorf("lifted: %v", err)
		}
		if got := b.Keys(t); len(got) != 1 {
			t.Errorf("lifted, and the server has %q", got)
		}
	})
}

// The caller has timed out and closed the connection when its command arrives.
func TestHoldRequestAfterTimeout(t *testing.T) {
	eachProxied(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy) {
		rule := p.HoldRequest(redistest.Named("SET"))
		executed := p.HoldReply(redistest.Named("SET"))
		c := dial(t, p.Addr())
		c.send(t, command("SET key value"))
		rule.Wait(t)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		rule.Lift()
		executed.Wait(t)
		if got, ok := b.Raw(t, "key"); got != "value" || !ok {
			t.Errorf("the server has %q, %t", got, ok)
		}
	})
}

func TestHoldReply(t *testing.T) {
	eachProxied(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy) {
		client := ready(t, p)
		rule := p.HoldReply(redistest.Named("SET"))
		result := make(chan error, 1)
		go func() { result <- client.Set(within(t), "key", "value", 0).Err() }()
		rule.Wait(t)
		if got := b.Keys(t); len(got) != 1 {
			t.Errorf("the server has %q", got)
		}
		select {
		case err := <-result:
			t.Errorf("the client got a reply: %v", err)
		default:
		}
		rule.Lift()
		if err := <-result; err != nil {
			t.Errorf("lifted: %v", err)
		}
	})
}

func TestCutDropsHeldCommands(t *testing.T) {
	eachProxied(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy) {
		client := ready(t, p)
		rule := p.HoldRequest(redistest.Named("SET"))
		result := make(chan error, 1)
		go func() { result <- client.Set(within(t), "key", "value", 0).Err() }()
		rule.Wait(t)
		p.Cut()
		if err := <-result; err == nil || isTimeout(err) {
			t.Errorf("got %v, want a closed connection", err)
		}
		rule.Lift()
		if err := client.Ping(within(t)).Err(); err != nil {
			t.Errorf("a new connection: %v", err)
		}
		if got := b.Keys(t); len(got) != 0 {
			t.Errorf("the server has %q", got)
		}
	})
}
