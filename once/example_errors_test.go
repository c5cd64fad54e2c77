package once_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/once"
)

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

// The provider could not be reached, so nothing was charged, and the next call runs at once.
func ExampleNothingHappened() {
	locker, stop := startLocker()
	defer stop()
	guard := once.New(locker, once.WithAtMostOnce())

	call := func(dial error) {
		key := once.Key{Operation: "charge", Scope: "ann", ID: "order 7"}
		receipt, _, err := once.Do(context.Background(), guard, key, func(context.Context) (Receipt, error) {
			if dial != nil {
				return Receipt{}, once.NothingHappened(dial)
			}
			return Receipt{"p-1"}, nil
		})
		fmt.Printf("%q %v\n", receipt.Payment, err)
	}
	call(errors.New("connection refused"))
	call(nil)
	// Output:
	// "" connection refused
	// "p-1" <nil>
}

// An error that later calls must get, too.
func ExampleFinal() {
	locker, stop := startLocker()
	defer stop()
	guard := once.New(locker)

	for range 2 {
		key := once.Key{Operation: "charge", Scope: "ann", ID: "order 7"}
		_, replayed, err := once.Do(context.Background(), guard, key, func(context.Context) (Receipt, error) {
			return Receipt{}, once.Final(errors.New("card declined"))
		})
		var stored *once.StoredError
		fmt.Println(replayed, err, errors.As(err, &stored))
	}
	// Output:
	// false card declined false
	// true card declined true
}
