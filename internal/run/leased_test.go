package run_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/lock"
)

// commands is a hook that calls a function before and after each command but those that set up a connection.
type commands struct {
	mu     sync.Mutex
	before func(name string) error // of whose error the command is not sent; guarded by mu, as after
	after  func(name string)
}

func (c *commands) set(before func(name string) error, after func(name string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before, c.after = before, after
}

// end lets all commands through again, and waits until no value is pending.
func (c *commands) end(t *testing.T, locker *lock.Locker) {
	t.Helper()
	c.set(nil, nil)
	for locker.Stats().Pending > 0 {
		_, _ = locker.Look(t.Context(), "k") // tries to store it
	}
}

func (*commands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.mu.Lock()
		before, after := c.before, c.after
		c.mu.Unlock()
		if before != nil {
			if err := before(cmd.Name()); err != nil {
				cmd.SetErr(err)
				return err
			}
		}
		err := next(ctx, cmd)
		if after != nil {
			after(cmd.Name())
		}
		return err
	}
}

func (*commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// errRefused is an error after which a command is not sent again.
var errRefused = redis.ErrClosed

// refuse refuses the commands with that name.
func refuse(name string) func(string) error {
	return func(got string) error {
		if got == name {
			return errRefused
		}
		return nil
	}
}

// theft is what is needed to take a key from a run.
type theft struct {
	*testing.T
	client redis.UniversalClient // without the hook
	hook   *commands
	key    string // as it stands in Redis
}

// put gives the key to another claim whose input has that fingerprint, or to a record with it.
func (o theft) put(fingerprint record.Fingerprint, isRecord bool) {
	o.Helper()
	thief := lock.New(o.client, "test", lock.WithOpTimeout(30*time.Second))
	defer func() { _ = thief.Close(context.Background()) }()
	if err := o.client.Del(o.Context(), o.key).Err(); err != nil {
		o.Error(err)
	}
	note := new(record.Codec).EncodeNote(nil, o.key, record.Note{Fingerprint: fingerprint})
	claim, err := thief.Claim(o.Context(), "k", note, 0)
	if err != nil {
		o.Error(err)
		return
	}
	if isRecord {
		rec := &record.Record{Fingerprint: fingerprint, Completed: time.Now(), Body: []byte("theirs")}
		if err := claim.Lease.Settle(o.Context(), new(record.Codec).Append(nil, o.key, rec), time.Hour); err != nil {
			o.Error(err)
		}
		return
	}
	claim.Lease.Abandon()
}

// free frees the key before a claim.
func (o theft) free(name string) error {
	if name == "set" {
		return o.client.Del(o.Context(), o.key).Err()
	}
	return nil
}

// A run that has lost its key hands out its own product only if it gets the key again, or a part of it was sent.
func TestLostKey(t *testing.T) {
	t.Parallel()
	same, different := request(1).Fingerprints[0], request(2).Fingerprints[0]
	incomparable := record.Fingerprint{Kind: record.Kind{2}}
	for name, test := range map[string]struct {
		product product
		lose    func(theft)
		kind    run.Kind
		body    string // of the record
		err     string // what else the error says
		again   string // what a repetition finds; empty: no record
	}{
		"a claim":                {product{keeps: true}, func(o theft) { o.put(same, false) }, run.InFlight, "", "", ""},
		"a claim, and freed":     {product{}, func(o theft) { o.put(same, false) }, run.InFlight, "", "", ""},
		"a claim, and sent":      {product{keeps: true, sent: true}, func(o theft) { o.put(same, false) }, run.Own, "", "", ""},
		"another input's claim":  {product{keeps: true}, func(o theft) { o.put(different, false) }, run.Unknown, "", "", ""},
		"a record":               {product{keeps: true}, func(o theft) { o.put(same, true) }, run.Stored, "theirs", "", "theirs"},
		"another input's record": {product{keeps: true}, func(o theft) { o.put(different, true) }, run.Unknown, "", "", ""},
		"an incomparable record": {product{keeps: true}, func(o theft) { o.put(incomparable, true) }, run.Unknown, "", "", ""},
		"another program's":      {product{keeps: true}, func(o theft) { o.client.Set(o.Context(), o.key, "x", 0) }, run.Unreadable, "", "", ""},
		"a claim, and then it dies": {product{keeps: true, body: "b"}, func(o theft) {
			o.put(same, false)
			o.hook.set(o.free, nil)
		}, run.Own, "", "", "hb"},
		"a claim, and then another": {product{keeps: true}, func(o theft) {
			o.put(same, false)
			o.hook.set(o.free, func(name string) {
				if name == "set" {
					o.put(same, false)
				}
			})
		}, run.Unknown, "", "", ""},
		"a claim, and then Redis": {product{keeps: true}, func(o theft) {
			o.put(same, false)
			o.hook.set(refuse("set"), nil)
		}, run.Unknown, "", errRefused.Error(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mini := redistest.Mini(t)
			client, hook := mini.Client(t), &commands{}
			client.AddHook(hook)
			g, locker := newGuardOn(t, client)
			r, _ := begin(t, g, &test.product)
			r.CutOff()
			test.lose(theft{t, mini.Client(t), hook, locker.StorageKey("k")})
			result := r.Conclude(run.Ending{How: run.Whole})
			want(t, result, test.kind, run.OutcomeLeaseLost)
			if string(result.Record.Body) != test.body || result.Settle.Start.IsZero() {
				t.Errorf("%+v, want the record %q, and when it was settled", result, test.body)
			}
			if err := result.Err; !errors.Is(err, lock.ErrLost) || !strings.Contains(err.Error(), test.err) ||
				!test.product.sent && !strings.Contains(err.Error(), "a run that made "+test.product.body) {
				t.Errorf("%v", err)
			}
			hook.set(nil, nil)
			if again := g.Begin(t.Context(), request(1)); string(again.Record.Body) != test.again {
				t.Errorf("again: %+v", again)
			}
		})
	}
}

// fault: the product panics in Conclude, which is called again while Redis refuses the value -> the lease still runs out
func TestLeaseRunsOutAfterAPanic(t *testing.T) {
	t.Parallel()
	client, hook := redistest.Mini(t).Client(t), &commands{}
	client.AddHook(hook)
	locker := lock.New(client, "test", lock.WithOpTimeout(30*time.Second), lock.WithTTL(10*time.Second))
	g := run.New("run", locker, run.Policy{Retention: time.Hour, MaxWaiters: 10, MaxDuration: time.Hour})
	p := &panicsOnce{product: product{keeps: true, sent: true}}
	r := runOf(t, g, request(1))
	r.Start(p)
	r.CutOff()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Conclude does not panic")
			}
		}()
		r.Conclude(run.Ending{How: run.Whole})
	}()
	hook.set(func(name string) error {
		if name == "evalsha" {
			return redis.ErrClosed
		}
		return nil
	}, nil)
	r.Conclude(run.Ending{How: run.Whole})
	for begun := time.Now(); locker.Stats().Leases > 0; time.Sleep(time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatal("the lease is renewed")
		}
	}
	hook.set(nil, nil)
	if err := locker.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// panicsOnce is a product whose first Payload panics.
type panicsOnce struct {
	product
	panicked bool
}

func (p *panicsOnce) Payload() (head, body []byte, ok bool) {
	if !p.panicked {
		p.panicked = true
		panic("the product's")
	}
	return p.product.Payload()
}

// A run whose ending Redis has not got tells the outcome that it has then, and the size of what is pending.
func TestRedisFailsAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		how     run.How
		say     func(*run.Control)
		keeps   bool
		outcome run.Outcome
		stores  bool
	}{
		"whole":       {run.Whole, nil, true, run.OutcomeNotStored, true},
		"freed":       {run.Whole, nil, false, run.OutcomeFreed, false},
		"broken":      {run.Broken, (*run.Control).Keep, false, run.OutcomeRunUnknown, true},
		"interrupted": {run.Interrupted, (*run.Control).Keep, false, run.OutcomePanicked, true},
		"left":        {run.Interrupted, nil, false, run.OutcomePanicked, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, hook := redistest.Mini(t).Client(t), &commands{}
			client.AddHook(hook)
			g, locker := newGuardOn(t, client)
			r, _ := begin(t, g, &product{keeps: test.keeps})
			if test.say != nil {
				test.say(r.Control())
			}
			r.CutOff()
			hook.set(refuse("evalsha"), nil)
			result := r.Conclude(run.Ending{How: test.how})
			hook.end(t, locker)
			want(t, result, run.Own, test.outcome)
			if isPending := errors.Is(result.Err, lock.ErrPending); test.stores && !isPending || (result.Size > 0) != test.stores {
				t.Errorf("%v, size %d", result.Err, result.Size)
			}
			if isLeft := result.Settle.Start.IsZero(); isLeft != (name == "left") {
				t.Errorf("settled: %+v", result.Settle)
			}
		})
	}
}
