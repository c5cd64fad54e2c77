package once_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

// startLocker returns a Locker on a server that stands for your Redis.
func startLocker() (locker *lock.Locker, stop func()) {
	_, locker, stop = startServer()
	return locker, stop
}

func startServer() (server *miniredis.Miniredis, locker *lock.Locker, stop func()) {
	server = miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	locker = lock.New(client, "payments", lock.WithOpTimeout(30*time.Second))
	return server, locker, func() {
		_ = locker.Close(context.Background())
		_ = client.Close()
		server.Close()
	}
}

type Order struct {
	Customer string
	Amount   int
}

type Receipt struct{ Payment string }

// charge stands for your payment provider.
func charge(_ context.Context, o Order) (Receipt, error) {
	fmt.Println("charging", o.Customer, o.Amount)
	return Receipt{"p-1"}, nil
}

// A queue delivers a message twice.
func Example() {
	locker, stop := startLocker()
	defer stop()
	guard := once.New(locker)

	handle := func(messageID string, order Order) {
		key := once.Key{Operation: "charge", Scope: order.Customer, ID: messageID, Input: order}
		receipt, replayed, err := once.Do(context.Background(), guard, key, func(ctx context.Context) (Receipt, error) {
			return charge(ctx, order)
		})
		fmt.Println(receipt.Payment, replayed, err)
	}
	handle("m-7", Order{"ann", 1250})
	handle("m-7", Order{"ann", 1250})
	// Output:
	// charging ann 1250
	// p-1 false <nil>
	// p-1 true <nil>
}

// What a consumer does with the errors of Do.
func ExampleDo_consumer() {
	locker, stop := startLocker()
	defer stop()
	guard := once.New(locker)

	deliver := func(f func(context.Context) (Receipt, error)) {
		key := once.Key{Operation: "charge", Scope: "orders", ID: "m-7"}
		_, _, err := once.Do(context.Background(), guard, key, f)
		var refused *once.Refused
		var stored *once.StoredError
		switch {
		case err == nil:
			fmt.Println("ack")
		case errors.Is(err, once.ErrNotStored):
			fmt.Println("ack; it was done")
		case errors.As(err, &stored):
			fmt.Println("ack; an earlier delivery has failed for good:", err)
		case errors.As(err, &refused) && !refused.Retryable:
			fmt.Println("to a person:", err)
		case errors.As(err, &refused):
			fmt.Println("nack, again after", refused.RetryAfter)
		default:
			fmt.Println("nack:", err)
		}
	}
	deliver(func(context.Context) (Receipt, error) {
		deliver(func(context.Context) (Receipt, error) { panic("two at a time") })
		return Receipt{}, errors.New("the database did not answer")
	})
	declined := func(context.Context) (Receipt, error) { return Receipt{}, once.Final(errors.New("card declined")) }
	deliver(declined)
	deliver(declined)
	// Output:
	// nack, again after 1s
	// nack: the database did not answer
	// nack: card declined
	// ack; an earlier delivery has failed for good: card declined
}

// With WithAtMostOnce the function says what it knows about its effect.
func ExampleWithAtMostOnce() {
	locker, stop := startLocker()
	defer stop()
	guard := once.New(locker, once.WithAtMostOnce())
	errDial, errDeclined := errors.New("no connection"), errors.New("card declined")

	call := func(err error) {
		key := once.Key{Operation: "charge", Scope: "ann", ID: "order 7"}
		_, replayed, err := once.Do(context.Background(), guard, key, func(context.Context) (Receipt, error) {
			return Receipt{}, err
		})
		fmt.Println(replayed, err)
	}
	call(once.NothingHappened(errDial)) // the request was not sent
	call(errDeclined)
	call(errDial) // does not run
	// Output:
	// false no connection
	// false card declined
	// true card declined
}

func ExampleFromContext() {
	locker, stop := startLocker()
	defer stop()
	guard := once.New(locker)

	key := once.Key{Operation: "charge", Scope: "ann", ID: "order 7"}
	_, _, err := once.Do(context.Background(), guard, key, func(ctx context.Context) (Receipt, error) {
		run := once.FromContext(ctx)
		run.Retain(7 * 24 * time.Hour)
		fmt.Println("Idempotency-Key for the provider:", len(run.Key()) > 64)
		return Receipt{"p-1"}, nil
	})
	fmt.Println(err)
	// Output:
	// Idempotency-Key for the provider: true
	// <nil>
}

// paymentsJournal stands for the table of sqljournal.Intent.
type paymentsJournal struct{ *memJournal }

func (paymentsJournal) Namespace() string { return "payments" }

// openJournal stands for sqljournal.Intent(db, "payments") at your program's start.
func openJournal() paymentsJournal { return paymentsJournal{newJournal(true)} }

// Redis forgets everything between two deliveries. The journal, a table in your database, has the result.
func ExampleWithJournal() {
	server, locker, stop := startServer()
	defer stop()
	journal := openJournal() // sqljournal.Intent(db, "payments")
	guard := once.New(locker, once.WithJournal(journal))

	deliver := func() {
		key := once.Key{Operation: "charge", Scope: "ann", ID: "m-7"}
		receipt, replayed, err := once.Do(context.Background(), guard, key, func(ctx context.Context) (Receipt, error) {
			return charge(ctx, Order{"ann", 1250})
		})
		fmt.Println(receipt.Payment, replayed, err)
	}
	deliver()
	server.FlushAll()
	deliver()
	// Output:
	// charging ann 1250
	// p-1 false <nil>
	// p-1 true <nil>
}

// The charge got no reply. Without WithAtMostOnce a later call runs, once the lease has run out.
func ExampleUnknown() {
	server, locker, stop := startServer()
	defer stop()
	guard := once.New(locker)

	call := func() error {
		key := once.Key{Operation: "charge", Scope: "ann", ID: "order 7"}
		_, _, err := once.Do(context.Background(), guard, key, func(context.Context) (Receipt, error) {
			fmt.Println("charging")
			return Receipt{}, once.Unknown(errors.New("the provider did not answer"))
		})
		return err
	}
	fmt.Println(call())
	fmt.Println(errors.Is(call(), once.ErrInFlight)) // within the lease
	server.FastForward(10 * time.Second)
	fmt.Println(call())
	// Output:
	// charging
	// the provider did not answer
	// true
	// charging
	// the provider did not answer
}
