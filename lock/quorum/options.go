package quorum

import (
	"context"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// Option changes a default of [New].
type Option func(*options)

type options struct {
	lockers []lock.Option // of each master's Locker
	retry   lock.Retry
}

// forLockers returns an Option that gives opt to each master's Locker.
func forLockers(opt lock.Option) Option {
	return func(o *options) { o.lockers = append(o.lockers, opt) }
}

// WithTTL sets the length of a lease: see [lock.WithTTL]. The default is 10 s.
func WithTTL(d time.Duration) Option { return forLockers(lock.WithTTL(d)) }

// WithoutRenewal switches renewal off: see [lock.WithoutRenewal]. By default a lease is renewed at a third of its
// length.
func WithoutRenewal() Option { return forLockers(lock.WithoutRenewal()) }

// WithOpTimeout sets the time for one operation on one master: see [lock.WithOpTimeout]. The default is 500 ms. A
// Quorum waits for that long only if no majority answers earlier.
func WithOpTimeout(d time.Duration) Option { return forLockers(lock.WithOpTimeout(d)) }

// WithBaseContext sets the context whose values go-redis's hooks see in commands that belong to no single caller: see
// [lock.WithBaseContext]. The default is [context.Background].
func WithBaseContext(ctx context.Context) Option { return forLockers(lock.WithBaseContext(ctx)) }

// WithRetry sets when Acquire tries again, and how often: see [lock.Retry]. The pause after the n-th try is random
// between 0 and min(Max, Min * 2^(n-1)). The default is pauses of up to 20 ms, growing to 1 s, until ctx is done. It
// panics where [lock.WithRetry] does.
func WithRetry(r lock.Retry) Option {
	lock.WithRetry(r) // panics if r is wrong
	if r.Max == 0 {
		r.Max = max(time.Second, r.Min)
	}
	if r.Min == 0 {
		r.Min = min(20*time.Millisecond, r.Max)
	}
	return func(o *options) { o.retry = r }
}
