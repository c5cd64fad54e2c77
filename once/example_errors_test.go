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
