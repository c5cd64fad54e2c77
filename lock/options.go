package lock

import (
	"fmt"
	"time"
)

// minTTL keeps a lease clearly longer than what is taken off for the drift of clocks and a trip to the server.
const minTTL = 10 * time.Millisecond

// Option changes a default of [New].
type Option func(*options)

type options struct {
	ttl       time.Duration
	renew     bool
	opTimeout time.Duration
	retry     Retry
}

func defaultOptions() options {
	return options{
		ttl:       10 * time.Second,
		renew:     true,
		opTimeout: 500 * time.Millisecond,
		retry:     Retry{Min: 20 * time.Millisecond, Max: time.Second},
	}
}

// WithTTL sets how long a lease lasts when nobody renews it, in whole milliseconds. The default is 10 s.
//
// It is how long a key stays taken after its holder died. A lease is renewed at a third of it, so a short one asks
// Redis more often. It panics below 10 ms.
func WithTTL(d time.Duration) Option {
	if d < minTTL {
		panic(fmt.Sprintf("lock.WithTTL: %v is below %v", d, minTTL))
	}
	return func(o *options) { o.ttl = d.Truncate(time.Millisecond) }
}

// WithoutRenewal makes leases fixed: they end after the time given by [WithTTL], unless [Lease.Extend] is called. The
// default is to renew a lease at a third of its length until it is released, settled, abandoned or lost.
func WithoutRenewal() Option {
	return func(o *options) { o.renew = false }
}

// WithOpTimeout bounds how long any call to Redis may take, retries included, also when the server is silent and
// however the client was configured. The default is 500 ms. It panics when d is not positive.
func WithOpTimeout(d time.Duration) Option {
	if d <= 0 {
		panic(fmt.Sprintf("lock.WithOpTimeout: %v is not positive", d))
	}
	return func(o *options) { o.opTimeout = d }
}

// Retry says how [Locker.Acquire] waits between two tries. The pause after the n-th try is random between 0 and
// min(Max, Min * 2^(n-1)): "full jitter", so that rivals do not march in step.
type Retry struct {
	Min      time.Duration // bound of the first pause; 0 means 20 ms, or Max if that is less
	Max      time.Duration // bound of every pause; 0 means 1 s, or Min if that is more
	Attempts int           // how many tries there are in all; 0 means until ctx is done
}

// WithRetry sets how Acquire waits. It panics on negative fields, and when Min is above Max.
func WithRetry(r Retry) Option {
	def := defaultOptions().retry
	if r.Max == 0 {
		r.Max = max(def.Max, r.Min)
	}
	if r.Min == 0 {
		r.Min = min(def.Min, r.Max)
	}
	if r.Min < 0 || r.Max < r.Min || r.Attempts < 0 {
		panic(fmt.Sprintf("lock.WithRetry: %+v: want 0 <= Min <= Max and Attempts >= 0", r))
	}
	return func(o *options) { o.retry = r }
}

// pause returns the bound of the pause after n tries.
func (r Retry) pause(n int) time.Duration {
	d := r.Min
	for ; n > 1; n-- {
		if d > r.Max/2 {
			return r.Max
		}
		d *= 2
	}
	return d
}
