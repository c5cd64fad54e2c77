// Command asynq sends invoices as tasks of asynq, each once, even if a worker dies between sending and reporting it.
//
//	redis-server &
//	go run . &            # a worker; start as many as you like
//	go run . -invoice 7   # enqueues a task
//	redis-cli LRANGE sent 0 -1
//
// Kill a worker while it works: after a minute asynq gives its task to another one.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "`host:port` of Redis")
	invoice := flag.String("invoice", "", "enqueue the sending of this invoice, and exit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var err error
	if *invoice != "" {
		err = enqueue(*addr, *invoice)
	} else {
		err = run(ctx, *addr)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func enqueue(addr, invoice string) error {
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: addr})
	_, err := client.Enqueue(asynq.NewTask("invoice:send", []byte(invoice)), asynq.TaskID("invoice-"+invoice))
	return errors.Join(err, client.Close())
}

// run works until ctx is done.
func run(ctx context.Context, addr string) error {
	client := connect(addr)
	locker := lock.New(client, "invoices")
	guard := once.New(locker,
		once.WithRetention(30*24*time.Hour), // longer than asynq may retry a task
		once.WithMaxDuration(30*time.Minute),
		once.WithCancel(), // a worker that shuts down ends its tasks
	)
	mux := asynq.NewServeMux()
	mux.Use(processOnce(guard))
	mux.HandleFunc("invoice:send", send(client))
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: addr},
		asynq.Config{Concurrency: 10, IsFailure: isFailure, RetryDelayFunc: retryDelay, LogLevel: asynq.WarnLevel})
	if err := server.Start(mux); err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	closing, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(locker.Close(closing), client.Close())
}

// send stands for your mail provider: it appends to a list. After an error, and after a crash in between, the next try
// sends again. So give a real provider once.FromContext(ctx).Key() as its idempotency key, if it takes one.
func send(client *redis.Client) func(context.Context, *asynq.Task) error {
	return func(ctx context.Context, task *asynq.Task) error {
		return client.RPush(ctx, "sent", string(task.Payload())).Err()
	}
}

// connect returns a client of Redis. It sends a command once: the effect of this example is a command, and a client that
// retries after a lost reply would have it twice.
func connect(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, ReadTimeout: 20 * time.Second,
	})
}
