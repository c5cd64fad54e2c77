package lock_test

import (
	"context"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
)

// Alert when Lost grows, and when Queued stays above 0.
func ExampleLocker_Stats() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "reports")
	defer locker.Close(ctx)

	lease, err := locker.Acquire(ctx, "monthly")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held:", locker.Stats().Leases)
	_ = lease.Release(ctx)
	s := locker.Stats()
	fmt.Println("held:", s.Leases, "lost:", s.Lost, "queued:", s.Queued)
	// Output:
	// held: 1
	// held: 0 lost: 0 queued: 0
}

// A hook can tell what a caller waits for from what the Locker sends on its own.
func ExampleWithBaseContext() {
	client, stop := newClient()
	defer stop()
	type sender struct{}
	client.AddHook(&announcer{of: func(ctx context.Context) any { return ctx.Value(sender{}) }})
	ctx := context.WithValue(context.Background(), sender{}, "a caller")
	base := context.WithValue(context.Background(), sender{}, "the locker")

	locker := lock.New(client, "reports", lock.WithBaseContext(base))
	lease, err := locker.Acquire(ctx, "monthly")
	if err != nil {
		fmt.Println(err)
		return
	}
	extended := make(chan struct{})
	locker.Go(func(ctx context.Context) { // a journal's retry, for example
		defer close(extended)
		_ = lease.Extend(ctx, locker.TTL())
	})
	<-extended
	_ = locker.Close(ctx)
	// Output:
	// sent by a caller
	// sent by the locker
}

// announcer is a hook that prints whose command is sent, if the one before was another's.
type announcer struct {
	of   func(context.Context) any
	last any
}

func (*announcer) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (s *announcer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if of := s.of(ctx); isOurs(cmd) && of != s.last {
			fmt.Println("sent by", of)
			s.last = of
		}
		return next(ctx, cmd)
	}
}

func (*announcer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
