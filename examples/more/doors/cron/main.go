// Command cron is a job that crontab starts on every machine, and that one of them does.
//
//	0 3 * * *  cron -redis redis.internal:6379
//
// Run it several times at once, and again later:
//
//	redis-server &
//	go run . & go run . & go run .
//	redis-cli LRANGE reports 0 -1
//
// One run writes the report of the day. The others wait for it and say what it was. If the machine that writes it dies,
// another one does, within a minute. If it dies right after its work, the report is there twice: a job that must not be
// done twice gets once.WithAtMostOnce. A lock alone would not do: the machine whose clock is late would get the lock when
// the job is done, and do it again.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "`host:port` of Redis")
	// The day is that of the schedule. A moment of this run, such as time.Now, would be another key on each machine.
	day := flag.String("day", time.Now().UTC().Format(time.DateOnly), "the day of the report")
	flag.Parse()
	report, replayed, err := run(context.Background(), *addr, *day)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("%s (another run has done it: %t)", report, replayed)
}

// run does the job of a day, or waits until another machine has done it.
func run(ctx context.Context, addr, day string) (report string, replayed bool, err error) {
	// The client sends a command once: the effect of this example is a command, and a client that retries after a lost reply
	// would have it twice.
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: time.Minute})
	locker := lock.New(client, "cron")
	guard := once.New(locker, once.WithWait(time.Minute), once.WithMaxDuration(30*time.Minute), once.WithRetention(7*24*time.Hour))
	key := once.Key{Operation: "daily report", Scope: once.Anyone, ID: day}
	for {
		report, replayed, err = once.Do(ctx, guard, key, func(ctx context.Context) (string, error) {
			report := "report of " + day
			// This stands for the job.
			return report, client.RPush(ctx, "reports", report).Err()
		})
		refused := (*once.Refused)(nil)
		if !errors.As(err, &refused) || !refused.Retryable {
			return report, replayed, errors.Join(err, locker.Close(ctx))
		}
		// It still runs, or its machine has died.
		log.Print(err)
		time.Sleep(refused.RetryAfter)
	}
}
