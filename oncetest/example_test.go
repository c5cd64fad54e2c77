package oncetest_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/oncetest"
)

// printer stands for the *testing.T of your test.
type printer struct {
	testing.TB
	cleanups []func()
}

func (p *printer) Helper()                           {}
func (p *printer) Cleanup(f func())                  { p.cleanups = append(p.cleanups, f) }
func (p *printer) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func (p *printer) end() {
	for _, f := range slices.Backward(p.cleanups) {
		f()
	}
}

// This service pays once for a double click, a lost response and a slow client. Without WithAtMostOnce it pays again
// after a crash and after a panic.
func ExampleRun() {
	t := new(printer)
	defer t.end()
	paid := new(payments)

	oncetest.Run(t, oncetest.Case{
		Handler: func(client redis.UniversalClient) http.Handler {
			locker := lock.New(client, "payments-api")
			t.Cleanup(func() { _ = locker.Close(context.Background()) })
			return middleware.Idempotency(locker, standard, middleware.WithRequired())(http.HandlerFunc(paid.pay))
		},
		Request:      payment("ann", "1250"),
		OtherRequest: payment("ann", "99"),
		OtherUser:    payment("bob", "1250"),
		Effects:      paid.count,
	})
	// Output:
	// oncetest: crash: the process died after the effect, and when the lease had run out the request was sent again, and the effect happened 2 times. Nobody can know whether the effect had happened. Use middleware.WithAtMostOnce, which then refuses the retry, or a journal in the database that has the effect; or set Case.RunsAgain if that may happen.
	// oncetest: panic: the handler panicked after the effect, and when the lease had run out the request was sent again, and the effect happened 2 times. Nobody can know whether the effect had happened. Use middleware.WithAtMostOnce, which then refuses the retry, or a journal in the database that has the effect; or set Case.RunsAgain if that may happen.
}
