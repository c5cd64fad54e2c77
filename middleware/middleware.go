package middleware

import (
	"net/http"

	"github.com/onceguard/onceguard/internal/option"
	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
)

// Middleware lets each request take effect once. It is safe for concurrent use, and may wrap any number of handlers.
type Middleware struct {
	locker  *lock.Locker
	keyFunc keyfunc.Func
	guard   *run.Guard
	options
}

// New returns a Middleware. key derives a request's key: see [Middleware.Handler]. New panics when l, key or an option is
// nil, and on options that contradict each other.
func New(l *lock.Locker, key keyfunc.Func, opts ...Option) *Middleware {
	return newMiddleware("middleware.New", l, key, opts)
}

func newMiddleware(caller string, l *lock.Locker, key keyfunc.Func, opts []Option) *Middleware {
	option.Check(l != nil, "%s: the locker is nil", caller)
	option.Check(key != nil, "%s: key is nil", caller)
	m := &Middleware{locker: l, keyFunc: key, options: newOptions(caller, opts)}
	m.guard = run.New("middleware", l, m.policy)
	return m
}

// newOptions returns the defaults with opts. It panics when one of them is nil. run.New finds most contradictions.
func newOptions(caller string, opts []Option) options {
	o := defaultOptions()
	option.Apply(caller, &o, opts)
	o.applyKeyAge()
	o.checkServerErrors()
	if o.shadow {
		option.Check(o.policy.Journal == nil, "middleware.WithShadow: cannot be kept with WithJournal")
		o.policy.Wait, o.policy.Pauses = 0, true // no request waits, nor asks a Redis that has just failed
	}
	return o
}

func defaultOptions() options {
	return options{
		policy:      run.DefaultPolicy(record.HTTP),
		methods:     map[string]bool{http.MethodPost: true, http.MethodPatch: true},
		shouldStore: StoreDefault,
		maxBody:     1 << 20,
		maxResponse: 1 << 20,
		rules:       defaultRules,

		replayHeader: "Idempotent-Replayed",
	}
}
