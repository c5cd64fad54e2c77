package once_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

const leaseTTL = 10 * time.Second // lock's default

// both runs test on miniredis and on a real server.
func both(t *testing.T, test func(t *testing.T, b redistest.Backend)) {
	t.Helper()
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		test(t, b)
	})
}

// newLocker returns a Locker with a long time for one operation, so that a busy machine does not fail a test.
func newLocker(t testing.TB, client redis.UniversalClient, opts ...lock.Option) *lock.Locker {
	t.Helper()
	locker := lock.New(client, "test", append([]lock.Option{lock.WithOpTimeout(30 * time.Second)}, opts...)...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := locker.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return locker
}

type receipt struct {
	Number int64
	Note   string `json:",omitempty"`
}

// desk charges, with a Guard.
type desk struct {
	t      *testing.T
	locker *lock.Locker
	guard  *once.Guard
	events chan once.Event
	runs   atomic.Int64
}

func open(t *testing.T, b redistest.Backend, opts ...once.Option) *desk {
	t.Helper()
	return openOn(t, newLocker(t, b.Client(t)), opts...)
}

// openAlone opens a desk without Redis: an intent journal protects it alone. In a bubble the Locker must be closed in it.
func openAlone(t *testing.T, j journal.Journal, opts ...once.Option) *desk {
	t.Helper()
	return openOn(t, lock.None("test"), append(opts, once.WithJournal(j))...)
}

func openOn(t *testing.T, locker *lock.Locker, opts ...once.Option) *desk {
	t.Helper()
	d := &desk{t: t, locker: locker, events: make(chan once.Event, 100)}
	opts = append([]once.Option{once.WithObserver(func(_ context.Context, e once.Event) { d.events <- e })}, opts...)
	d.guard = once.New(locker, opts...)
	return d
}

var errDeclined = errors.New("declined")

type function func(context.Context) (receipt, error)

// charge returns a receipt with the number of the run.
func (d *desk) charge(context.Context) (receipt, error) { return receipt{Number: d.runs.Load()}, nil }

// fails returns a function that returns err.
func fails(err error) function {
	return func(context.Context) (receipt, error) { return receipt{}, err }
}

type edit func(*once.Key)

func scope(s string) edit     { return func(k *once.Key) { k.Scope = s } }
func id(s string) edit        { return func(k *once.Key) { k.ID = s } }
func operation(s string) edit { return func(k *once.Key) { k.Operation = s } }
func input(v any) edit        { return func(k *once.Key) { k.Input = v } }

type answer struct {
	receipt  receipt
	replayed bool
	err      error
}

// doIn calls f for ann's message 1, as edited. f counts as a run.
func (d *desk) doIn(ctx context.Context, f function, edits ...edit) answer {
	key := once.Key{Operation: "charge", Scope: "ann", ID: "1", Input: map[string]int{"amount": 1250, "tip": 3}}
	for _, e := range edits {
		e(&key)
	}
	v, replayed, err := once.Do(ctx, d.guard, key, func(ctx context.Context) (receipt, error) {
		d.runs.Add(1)
		return f(ctx)
	})
	return answer{v, replayed, err}
}

func (d *desk) do(f function, edits ...edit) answer { return d.doIn(d.t.Context(), f, edits...) }

// event returns the next Event, and checks its outcome and that it names the operation and the key.
func (d *desk) event(outcome once.Outcome) once.Event {
	d.t.Helper()
	select {
	case e := <-d.events:
		if e.Outcome != outcome || e.Operation != "charge" || e.Key == "" {
			d.t.Errorf("%+v, want %s", e, outcome)
		}
		return e
	case <-time.After(20 * time.Second):
		d.t.Fatal("no event")
		panic("unreachable")
	}
}

// want checks an answer with a receipt, and its Event.
func (d *desk) want(a answer, number int64, replayed bool, outcome once.Outcome) once.Event {
	d.t.Helper()
	if a.err != nil || a.receipt.Number != number || a.replayed != replayed {
		d.t.Errorf("got %+v, want receipt %d, replayed %v", a, number, replayed)
	}
	return d.event(outcome)
}

// wantError checks an answer with the error of a run, or a stored one.
func (d *desk) wantError(a answer, text string, replayed bool, outcome once.Outcome) once.Event {
	d.t.Helper()
	var stored *once.StoredError
	if a.err == nil || a.err.Error() != text || a.replayed != replayed || errors.As(a.err, &stored) != replayed {
		d.t.Errorf("got %+v (%T), want the error %q, replayed %v", a, a.err, text, replayed)
	}
	return d.event(outcome)
}

// wantRefused checks an answer that is a *Refused.
func (d *desk) wantRefused(a answer, reason error, outcome once.Outcome) once.Event {
	d.t.Helper()
	e := d.event(outcome)
	if err := refusalError(a, reason); err != nil {
		d.t.Error(err)
	}
	var refused *once.Refused
	if errors.As(a.err, &refused) && refused.Key != e.Key {
		d.t.Errorf("the Refused has the key %q, the Event %q", refused.Key, e.Key)
	}
	return e
}

func refusalError(a answer, reason error) error {
	retryable := reason == once.ErrInFlight || reason == once.ErrFailed || reason == once.ErrUnavailable
	var refused *once.Refused
	if reason == once.ErrOutcomeUnknown && errors.As(a.err, &refused) {
		retryable = refused.RetryAfter >= 30*time.Second // of an intent journal's row
	}
	switch {
	case !errors.As(a.err, &refused) || !errors.Is(a.err, reason) || refused.Reason != reason:
		return fmt.Errorf("got %+v, want a Refused: %w", a, reason)
	case a.replayed || a.receipt != receipt{}:
		return fmt.Errorf("a Refused has a result: %+v", a)
	case refused.Retryable != retryable || (refused.RetryAfter >= time.Second) != retryable:
		return fmt.Errorf("%+v, want retryable %v", refused, retryable)
	}
	return nil
}

func (d *desk) wantRuns(n int64) {
	d.t.Helper()
	if got := d.runs.Load(); got != n {
		d.t.Errorf("%d runs, want %d", got, n)
	}
}

// gate holds a function until it is opened.
type gate struct{ entered, open chan struct{} }

func newGate() *gate { return &gate{make(chan struct{}, 100), make(chan struct{})} }

// behind returns a function that passes the gate before f.
func (g *gate) behind(f function) function {
	return func(ctx context.Context) (receipt, error) {
		g.entered <- struct{}{}
		<-g.open
		return f(ctx)
	}
}

// inBackground calls f, and returns when it is in the gate.
func (d *desk) inBackground(g *gate, f function, edits ...edit) (done <-chan answer) {
	answers := make(chan answer, 1)
	go func() { answers <- d.do(g.behind(f), edits...) }()
	<-g.entered
	return answers
}
