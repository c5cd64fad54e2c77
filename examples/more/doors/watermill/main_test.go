package main

import (
	"io"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Main(m, redistest.Program{Name: "router", Run: func(args []string, _ io.Reader, _ io.Writer) error {
		return run(args[0], 200*time.Millisecond)
	}})
}

// fault: a router is killed when it has charged and published, and before it acks. Another one gets the message. It
// does not charge again, and publishes the same receipt.
func TestKilledBeforeTheAck(t *testing.T) {
	server := redistest.Start(t)
	client, proxy := server.Client(t), redistest.NewProxy(t, server.Addr())
	ack := proxy.HoldRequest(redistest.Named("XACK"))
	first := redistest.Run(t, "router", proxy.Addr())
	send(t, server, "")
	ack.Wait(t)
	first.Kill(t)
	again := redistest.NewProxy(t, server.Addr())
	acked := again.HoldReply(redistest.Named("XACK"))
	redistest.Run(t, "router", again.Addr())
	acked.Wait(t)
	if n := client.LLen(t.Context(), "charges").Val(); n != 1 {
		t.Errorf("%d charges, want 1", n)
	}
	receipts := client.XRange(t.Context(), "receipts", "-", "+").Val()
	if len(receipts) != 2 || receipts[0].Values["_watermill_message_uuid"] != receipts[1].Values["_watermill_message_uuid"] {
		t.Errorf("the receipts are %v, want the same twice", receipts)
	}
}

// An order that is published twice has two messages with two UUIDs. Its id is the same.
func TestPublishedTwice(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	for _, id := range []string{"7", "7", "8", "", ""} {
		send(t, server, id)
	}
	// A slow router gets a message twice, and acks it twice.
	proxy, acks := redistest.NewProxy(t, server.Addr()), make(chan string, 1000)
	proxy.HoldRequest(func(c redistest.Command) bool {
		if c.Name == "XACK" {
			acks <- string(c.Args[len(c.Args)-1])
		}
		return false
	})
	redistest.Run(t, "router", proxy.Addr())
	for acked := map[string]bool{}; len(acked) < 5; {
		acked[<-acks] = true
	}
	if n := client.LLen(t.Context(), "charges").Val(); n != 4 {
		t.Errorf("%d charges, want 4", n)
	}
}

func send(t *testing.T, server *redistest.Server, id string) {
	t.Helper()
	if err := publish(server.Addr(), id, `{"amount":1250}`); err != nil {
		t.Fatal(err)
	}
}
