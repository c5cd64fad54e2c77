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
	"fmt"
	"log"
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
	do := work
	if *invoice != "" {
		do = func(addr string) error { return enqueue(addr, *invoice) }
	}
	if err := do(*addr); err != nil {
		log.Fatal(err)
	}
}

func enqueue(addr, invoice string) error {
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: addr})
	_, err := client.Enqueue(asynq.NewTask("invoice:send", []byte(invoice)), asynq.TaskID("invoice-"+invoice))
	return errors.Join(err, client.Close())
}

// work works until a signal ends the process.
func work(addr string) error {
	// The client sends a command once: the effect of this example is a command, and a client that retries after a lost reply
	// would have it twice.
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: time.Minute})
	guard := once.New(lock.New(client, "invoices"),
		// Longer than asynq may retry a task.
		once.WithRetention(30*24*time.Hour),
		once.WithMaxDuration(30*time.Minute),
		// A worker that shuts down ends its tasks.
		once.WithCancel(),
	)
	mux := asynq.NewServeMux()
	mux.Use(processOnce(guard))
	// This stands for your mail provider: it appends to a list. After an error, and after a crash in between, the next try
	// sends again. So give a real provider once.FromContext(ctx).Key() as its idempotency key, if it takes one.
	mux.HandleFunc("invoice:send", func(ctx context.Context, task *asynq.Task) error {
		return client.RPush(ctx, "sent", string(task.Payload())).Err()
	})
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: addr},
		asynq.Config{Concurrency: 10, IsFailure: isFailure, RetryDelayFunc: retryDelay, LogLevel: asynq.WarnLevel})
	return server.Run(mux)
}

// processOnce returns a middleware of asynq, after which each task takes effect once. The id is that of the task, which
// is the same in every retry. The default mode is right for a queue that retries: an error frees the key.
//
// asynq's own Unique and TaskID prevent that a task is enqueued twice. They do not prevent that it runs twice: asynq
// retries a task whose worker has died or was cut off, and that worker may have done it.
func processOnce(g *once.Guard) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			queue, _ := asynq.GetQueueName(ctx)
			key := once.Key{Operation: task.Type(), Scope: queue, ID: id, Input: task.Payload()}
			_, _, err := once.Do(ctx, g, key, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, next.ProcessTask(ctx, task)
			})
			var failed *once.StoredError
			var refused *once.Refused
			switch {
			case errors.Is(err, once.ErrNotStored): // it was done
				return nil
			case errors.As(err, &failed), errors.As(err, &refused) && !refused.Retryable:
				// It is archived: a person looks at it.
				return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
			}
			return err
		})
	}
}

// isFailure reports whether a try counts: one that only found another one at work does not.
func isFailure(err error) bool {
	var refused *once.Refused
	return !errors.As(err, &refused) || !refused.Retryable
}

// retryDelay is when the next try makes sense.
func retryDelay(tries int, err error, task *asynq.Task) time.Duration {
	if refused := (*once.Refused)(nil); errors.As(err, &refused) && refused.Retryable {
		return refused.RetryAfter
	}
	return asynq.DefaultRetryDelayFunc(tries, err, task)
}
