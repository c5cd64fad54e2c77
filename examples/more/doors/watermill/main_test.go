package main

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

func TestMain(m *testing.M) {
	redistest.Main(m, redistest.Program{Name: "router", Run: func(args []string, _ io.Reader, _ io.Writer) error {
		return run(context.Background(), config{redis: args[0], idle: 200 * time.Millisecond})
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
	redistest.Run(t, "router", server.Addr())
	waitForAck(t, client, 1)

	if n := client.LLen(t.Context(), "charges").Val(); n != 1 {
		t.Errorf("%d charges, want 1", n)
	}
	receipts := client.XRange(t.Context(), "receipts", "-", "+").Val()
	if len(receipts) != 2 || receipts[0].Values["_watermill_message_uuid"] != receipts[1].Values["_watermill_message_uuid"] {
		t.Errorf("the receipts are %v, want the same twice", receipts)
	}
}

// fault: a message is delivered to a second router while the first still charges. The second nacks until the first has
// ended.
func TestTwoAtATime(t *testing.T) {
	server := redistest.Start(t)
	client, proxy := server.Client(t), redistest.NewProxy(t, server.Addr())
	charge := proxy.HoldReply(redistest.Named("RPUSH"))
	redistest.Run(t, "router", proxy.Addr())
	send(t, server, "")
	charge.Wait(t)

	other := redistest.NewProxy(t, server.Addr())
	claim := other.HoldReply(redistest.Named("SET")) // of the second router, which learns that the first still runs
	redistest.Run(t, "router", other.Addr())
	claim.Wait(t)
	claim.Lift()
	charge.Lift()
	waitForAck(t, client, 1)
	if n := client.LLen(t.Context(), "charges").Val(); n != 1 {
		t.Errorf("%d charges, want 1", n)
	}
}

// An order that is published twice has two messages with two UUIDs. Its id is the same.
func TestPublishedTwice(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	for _, id := range []string{"7", "7", "8", "", ""} {
		send(t, server, id)
	}
	redistest.Run(t, "router", server.Addr())
	waitForAck(t, client, 5)
	if n := client.LLen(t.Context(), "charges").Val(); n != 4 {
		t.Errorf("%d charges, want 4", n)
	}
}

// fault: a handler calls once.Do itself and returns what that answers, ErrNotStored or a StoredError. The message is not
// handled: it is nacked, and does not go to the poison queue.
func TestInnerDo(t *testing.T) {
	locker := lock.New(redistest.Mini(t).Client(t), "orders", lock.WithOpTimeout(20*time.Second))
	guard := once.New(locker)
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	orders := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)
	results := make(chan error, 2)
	see := func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			_, err := next(msg)
			results <- err
			return nil, nil
		}
	}
	router.AddMiddleware(see, handleOnce(guard, "billing", ""))
	router.AddConsumerHandler("charge", "orders", orders, func(msg *message.Message) (err error) {
		for range 2 {
			key := once.Key{Operation: "inner", Scope: once.Anyone, ID: string(msg.Payload)}
			_, _, err = once.Do(msg.Context(), guard, key, func(context.Context) (chan int, error) { // which has no JSON
				if string(msg.Payload) == "StoredError" {
					return nil, once.Final(errors.New("declined"))
				}
				return nil, nil
			})
		}
		return err
	})
	for _, answer := range []string{"ErrNotStored", "StoredError"} {
		if err := orders.Publish("orders", message.NewMessage(answer, []byte(answer))); err != nil {
			t.Fatal(err)
		}
	}
	routes := make(chan error, 1)
	go func() { routes <- router.Run(t.Context()) }()
	for range 2 {
		if err := <-results; err == nil || needsPerson(err) {
			t.Errorf("%v, want an error that nacks the message", err)
		}
	}
	if err := errors.Join(router.Close(), <-routes, orders.Close(), locker.Close(t.Context())); err != nil {
		t.Error(err)
	}
}

func send(t *testing.T, server *redistest.Server, id string) {
	t.Helper()
	if err := publish(server.Addr(), id, `{"amount":1250}`); err != nil {
		t.Fatal(err)
	}
}

// waitForAck returns when so many messages are acked.
func waitForAck(t *testing.T, client *redis.Client, messages int64) {
	t.Helper()
	for ctx := t.Context(); ; time.Sleep(10 * time.Millisecond) { // go test's own timeout ends a wait in vain
		groups, err := client.XInfoGroups(ctx, "orders").Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(groups) == 1 && groups[0].Pending == 0 && groups[0].EntriesRead == messages {
			return
		}
	}
}
