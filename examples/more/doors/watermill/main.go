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
	"os/signal"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

// config has what the test changes.
type config struct {
	redis string        // host:port
	idle  time.Duration // after which a message that was not acked is delivered to another process
}

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "`host:port` of Redis")
	order := flag.String("order", "", "publish this order, and exit")
	id := flag.String("id", "", "the order's `id`: an order that is published twice is charged once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var err error
	if *order != "" {
		err = publish(*addr, *id, *order)
	} else {
		err = run(ctx, config{redis: *addr, idle: time.Minute})
	}
	if err != nil {
		log.Fatal(err)
	}
}

// connect returns a client of its own for each user, because watermill closes those that it is given. The client sends a
// command once: the effect of this example is a command, and a client that retries after a lost reply would have it
// twice.
func connect(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, ReadTimeout: 20 * time.Second,
	})
}

// run handles orders until ctx is done.
func run(ctx context.Context, cfg config) error {
	logger := watermill.NewSlogLogger(slog.Default())
	client := connect(cfg.redis)
	locker := lock.New(client, "orders")
	guard := once.New(locker, once.WithRetention(7*24*time.Hour)) // longer than a message may be redelivered

	publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: connect(cfg.redis)}, logger)
	if err != nil {
		return err
	}
	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: connect(cfg.redis), ConsumerGroup: "billing", NackResendSleep: time.Second,
		ClaimInterval: cfg.idle / 10, MaxIdleTime: cfg.idle, DisableIndefiniteInitialBlock: true,
	}, logger)
	if err != nil {
		return err
	}
	poison, err := middleware.PoisonQueueWithFilter(publisher, "orders.poison", needsPerson)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	router.AddMiddleware(poison, handleOnce(guard, "billing", orderID)) // handleOnce is inside
	router.AddHandler("charge", "orders", subscriber, "receipts", publisher, charge(client))
	err = router.Run(ctx) // closes the subscriber and the publisher

	closing, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(err, locker.Close(closing), client.Close())
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
