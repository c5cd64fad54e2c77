// Command watermill charges for orders that arrive on a Redis Stream, each once, however often they are delivered.
//
//	redis-server &
//	go run . &                   # the router; start as many as you like
//	go run . -order '{"amount":1250}'
//	redis-cli LRANGE charges 0 -1   # what was charged
//	redis-cli XRANGE receipts - +   # what the handler has published
//
// Kill a router while it works: another one takes over its messages after a minute. watermill delivers such a message
// again, and that is right. Without once.Do in between, the customer would pay again.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "`host:port` of Redis")
	order := flag.String("order", "", "publish this order, and exit")
	id := flag.String("id", "", "the order's `id`: an order that is published twice is charged once")
	flag.Parse()
	var err error
	if *order != "" {
		err = publish(*addr, *id, *order)
	} else {
		err = run(*addr, time.Minute)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// connect returns a client of its own for each user, because watermill closes those that it is given. The client sends a
// command once: the effect of this example is a command, and a client that retries after a lost reply would have it
// twice.
func connect(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: time.Minute})
}

// run handles orders until it is killed. A message that was not acked for the idle time is delivered to another process.
func run(addr string, idle time.Duration) error {
	logger := watermill.NewSlogLogger(slog.Default())
	client := connect(addr)
	// The retention is longer than a message may be redelivered.
	guard := once.New(lock.New(client, "orders"), once.WithRetention(7*24*time.Hour))
	publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: connect(addr)}, logger)
	if err != nil {
		return err
	}
	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: connect(addr), ConsumerGroup: "billing", NackResendSleep: time.Second,
		ClaimInterval: idle / 10, MaxIdleTime: idle, DisableIndefiniteInitialBlock: true,
	}, logger)
	if err != nil {
		return err
	}
	poison, err := middleware.PoisonQueueWithFilter(publisher, "orders.poison", needsPerson)
	if err != nil {
		return err
	}
	router := message.NewDefaultRouter(logger)
	router.AddMiddleware(poison, handleOnce(guard, "billing", orderID)) // handleOnce is inside
	router.AddHandler("charge", "orders", subscriber, "receipts", publisher, charge(client))
	return router.Run(context.Background())
}

// charge stands for your payment provider: it appends to a list. After an error, and after a crash in between, the next
// delivery charges again. So give a real provider once.FromContext(ctx).Key() as its idempotency key.
func charge(client *redis.Client) message.HandlerFunc {
	return func(order *message.Message) ([]*message.Message, error) {
		if err := client.RPush(order.Context(), "charges", string(order.Payload)).Err(); err != nil {
			return nil, err
		}
		receipt := message.NewMessage(watermill.NewUUID(), order.Payload)
		return []*message.Message{receipt}, nil
	}
}

// orderID is the field of a message's metadata with the id of the order.
const orderID = "order_id"

func publish(addr, id, order string) error {
	publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: connect(addr)}, nil)
	if err != nil {
		return err
	}
	msg := message.NewMessage(watermill.NewUUID(), []byte(order))
	msg.Metadata.Set(orderID, id)
	return errors.Join(publisher.Publish("orders", msg), publisher.Close())
}

// handleOnce returns a middleware for a router of watermill, after which each message takes effect once.
//
// The id is the UUID of the message, which its publisher has made: a redelivery has the same. If a publisher may publish
// the same order twice, with another UUID, let it put the order's id into the metadata, and give the name of that field:
// a message that has the field is known by it. field may be empty. group is the consumer group: every group handles each
// message.
//
// What the handler produces is stored. On a redelivery the router publishes it again with the same UUIDs, because the
// first process may have died before it did. So its consumers should use this middleware too.
//
// A message that another process is handling is nacked when it makes sense to try again.
//
// watermill's own Deduplicator is no substitute. It marks a message as seen before the handler runs, so a message whose
// handler fails is lost.
func handleOnce(g *once.Guard, group, field string) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			delivery := msg.Context()
			key := once.Key{
				Operation: message.HandlerNameFromCtx(delivery), Scope: group, ID: msg.UUID, Input: []byte(msg.Payload),
			}
			if id := msg.Metadata.Get(field); id != "" {
				key.ID = field + " " + id // no UUID is this
			}
			out, _, err := once.Do(delivery, g, key, func(ctx context.Context) ([]*message.Message, error) {
				defer msg.SetContext(delivery)
				msg.SetContext(ctx)
				return next(msg)
			})
			if refused := (*once.Refused)(nil); errors.As(err, &refused) && refused.Retryable {
				time.Sleep(refused.RetryAfter)
			}
			// It was handled, and what it produced is too long to be kept.
			if errors.Is(err, once.ErrNotStored) {
				return nil, nil
			}
			// It has no more than its JSON.
			for i, stored := range out {
				out[i] = message.NewMessage(stored.UUID, stored.Payload)
				out[i].Metadata = stored.Metadata
			}
			// The router nacks if there is an error.
			return out, err
		}
	}
}

// needsPerson reports whether another delivery would get the same error: the handler has returned once.Final(err) in an
// earlier one, or nobody knows what happened. Such messages go to the poison queue.
func needsPerson(err error) bool {
	var failed *once.StoredError
	var refused *once.Refused
	return errors.As(err, &failed) || errors.As(err, &refused) && !refused.Retryable
}
