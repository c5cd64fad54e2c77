package run_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

var keys = record.NewKeyring("test", [][]byte{[]byte("a key of thirty-two bytes, or so")})

// elsewhere is a journal of another namespace.
type elsewhere struct{ fakeJournal }

func (*elsewhere) Namespace() string { return "elsewhere" }

// New panics if the policy contradicts itself, and names the option.
func TestContradictions(t *testing.T) {
	t.Parallel()
	intent := &fakeJournal{intent: true}
	for name, test := range map[string]struct {
		isNone bool
		policy run.Policy
		panics string
	}{
		"nothing":                         {false, run.Policy{}, ""},
		"at most once":                    {false, run.Policy{AtMostOnce: true}, ""},
		"at most once, open":              {false, run.Policy{AtMostOnce: true, FailOpen: true}, "run.WithAtMostOnce: cannot be kept with WithFailOpen"},
		"open":                            {false, run.Policy{FailOpen: true, Retention: lock.MaxHold + 1}, ""},
		"journal":                         {false, run.Policy{Journal: &fakeJournal{}}, ""},
		"journal, open":                   {false, run.Policy{Journal: intent, FailOpen: true}, "run.WithJournal: cannot"},
		"journal of another namespace":    {false, run.Policy{Journal: &elsewhere{}}, `run.WithJournal: the journal has the namespace "elsewhere"`},
		"encrypted":                       {false, run.Policy{Codec: record.Codec{Keys: keys}}, ""},
		"encrypted, and not before":       {false, run.Policy{Codec: record.Codec{Keys: keys, PlaintextReads: true}}, ""},
		"not encrypted, nor before":       {false, run.Policy{Codec: record.Codec{PlaintextReads: true}}, "run.WithPlaintextReads: "},
		"no Redis, no journal":            {true, run.Policy{}, "run.WithJournal: a locker without Redis"},
		"no Redis, transactional journal": {true, run.Policy{Journal: &fakeJournal{}}, "run.WithJournal: a locker without Redis"},
		"no Redis, intent journal":        {true, run.Policy{Journal: intent}, ""},
		"no Redis, at most once":          {true, run.Policy{Journal: intent, AtMostOnce: true}, "run.WithAtMostOnce: cannot be kept without Redis"},
	} {
		locker := lock.None("test")
		if !test.isNone {
			locker = lock.New(redistest.Mini(t).Client(t), "test")
		}
		func() {
			defer func() {
				if got := recover(); (got == nil) != (test.panics == "") || got != nil && !strings.Contains(fmt.Sprint(got), test.panics) {
					t.Errorf("%s: panicked: %v, want %q", name, got, test.panics)
				}
			}()
			run.New("run", locker, test.policy)
		}()
		if err := locker.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// What Begin returns for a key that it cannot claim, or must not.
func TestBegin(t *testing.T) {
	t.Parallel()
	refused := func(w begun) { w.hook.set(func(string) error { return errRefused }, nil) }
	foreign := func(w begun) { w.client.Set(w.Context(), w.locker.StorageKey("k"), "x", 0) }
	held := func(w begun) { w.claim(0) }
	abandoned := func(w begun) {
		w.claim(time.Hour).Abandon()
		w.mini.Elapse(w.T, time.Minute)
	}
	// pending leaves a value that Redis has not got yet.
	pending := func(w begun) {
		w.hook.set(refuse("evalsha"), nil)
		if err := w.claim(0).Settle(w.Context(), []byte("value"), time.Hour); !errors.Is(err, lock.ErrPending) {
			w.Error(err)
		}
	}
	row := func(state journal.State) journal.Journal {
		return &standing{entry: journal.Entry{State: state, Token: "another", Note: noteOf(lock.None("test"), 1)}}
	}
	tooOld := func(req *run.Run) { req.TooOld = true }
	for name, test := range map[string]struct {
		key    func(begun)
		policy run.Policy
		change func(*run.Run)
		kind   run.Kind
		err    error
	}{
		"no Redis":                          {refused, run.Policy{}, nil, run.Unavailable, errRefused},
		"no Redis, open":                    {refused, run.Policy{FailOpen: true}, nil, run.Unprotected, errRefused},
		"no Redis, open, too old":           {refused, run.Policy{FailOpen: true}, tooOld, run.Unavailable, errRefused},
		"no Redis, journal":                 {refused, run.Policy{Journal: &fakeJournal{}}, nil, run.Begun, nil},
		"no Redis, journal that fails":      {refused, run.Policy{Journal: &outage{beginFails: true}}, nil, run.NotBegun, errRefused},
		"no Redis, journal, too old":        {refused, run.Policy{Journal: row(journal.Absent)}, tooOld, run.Unavailable, errRefused},
		"no Redis, done, too old":           {refused, run.Policy{Journal: row(journal.Done)}, tooOld, run.NotKept, nil},
		"no Redis, running, too old":        {refused, run.Policy{Journal: row(journal.Running)}, tooOld, run.InFlight, nil},
		"no Redis, journal, at most once":   {refused, run.Policy{Journal: &fakeJournal{}, AtMostOnce: true}, nil, run.Unavailable, errRefused},
		"foreign":                           {foreign, run.Policy{}, nil, run.Unreadable, lock.ErrForeign},
		"foreign, open":                     {foreign, run.Policy{FailOpen: true}, nil, run.Unreadable, lock.ErrForeign},
		"foreign, done":                     {foreign, run.Policy{Journal: row(journal.Done)}, nil, run.Unreadable, lock.ErrForeign},
		"foreign, too old":                  {foreign, run.Policy{}, tooOld, run.Unreadable, lock.ErrForeign},
		"pending":                           {pending, run.Policy{}, nil, run.Unconfirmed, lock.ErrSettled},
		"pending, open":                     {pending, run.Policy{FailOpen: true}, nil, run.Unconfirmed, lock.ErrSettled},
		"pending, journal":                  {pending, run.Policy{Journal: row(journal.Absent)}, nil, run.Unconfirmed, lock.ErrSettled},
		"pending, done":                     {pending, run.Policy{Journal: row(journal.Done)}, nil, run.NotKept, nil},
		"held":                              {held, run.Policy{}, nil, run.InFlight, nil},
		"held, done":                        {held, run.Policy{Journal: row(journal.Done)}, nil, run.InFlight, nil},
		"held, open":                        {held, run.Policy{FailOpen: true}, nil, run.InFlight, nil},
		"held, too old":                     {held, run.Policy{}, tooOld, run.InFlight, nil},
		"abandoned":                         {abandoned, run.Policy{}, nil, run.Unknown, nil},
		"abandoned, done":                   {abandoned, run.Policy{Journal: row(journal.Done)}, nil, run.NotKept, nil},
		"abandoned, running":                {abandoned, run.Policy{Journal: row(journal.Running)}, nil, run.InFlight, nil},
		"abandoned, unfinished":             {abandoned, run.Policy{Journal: row(journal.Unfinished)}, nil, run.UnknownYet, nil},
		"abandoned, another's":              {abandoned, run.Policy{}, func(req *run.Run) { req.Request = request(2).Request }, run.Reused, nil},
		"free, too old":                     {nil, run.Policy{}, tooOld, run.Expired, nil},
		"free, too old, open":               {nil, run.Policy{FailOpen: true}, tooOld, run.Expired, nil},
		"free, too old, journal":            {nil, run.Policy{Journal: row(journal.Absent)}, tooOld, run.Expired, nil},
		"free, too old, running":            {nil, run.Policy{Journal: row(journal.Running)}, tooOld, run.InFlight, nil},
		"free, too old, unfinished":         {nil, run.Policy{Journal: row(journal.Unfinished)}, tooOld, run.UnknownYet, nil},
		"free, too old, done":               {nil, run.Policy{Journal: row(journal.Done)}, tooOld, run.NotKept, nil},
		"free, too old, journal that fails": {nil, run.Policy{Journal: &outage{lookFails: true}}, tooOld, run.Unavailable, errDown},
		"free, open":                        {nil, run.Policy{FailOpen: true}, nil, run.Begun, nil},
		"free, the row runs":                {nil, run.Policy{Journal: row(journal.Running)}, nil, run.InFlight, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mini := redistest.Mini(t)
			client, hook := mini.Client(t), &commands{}
			client.AddHook(hook)
			g, locker := newGuardOn(t, client, func(p *run.Policy) {
				retention, limit := p.Retention, p.MaxDuration
				*p = test.policy
				p.Retention, p.MaxDuration = retention, limit
			})
			w := begun{t, mini, mini.Client(t), hook, locker}
			if test.key != nil {
				test.key(w)
			}
			req := request(1)
			if test.change != nil {
				test.change(req)
			}
			before, _ := mini.Raw(t, locker.StorageKey("k"))
			result := g.Begin(t.Context(), req)
			if result.Kind != test.kind || test.err != nil && !errors.Is(result.Err, test.err) {
				t.Errorf("%+v, want %v, %v", result, test.kind, test.err)
			}
			if req.StorageKey != locker.StorageKey("k") || req.Phases.Claim.Start.IsZero() {
				t.Errorf("%q, %+v", req.StorageKey, req.Phases)
			}
			if result.Kind == run.Begun {
				req.Start(&product{})
				req.CutOff()
				if err := req.Conclude(run.Ending{How: run.Whole}).Err; errors.Is(err, errRefused) != strings.Contains(name, "no Redis") {
					t.Errorf("%v, want why there was no lease", err)
				}
			} else if after, _ := mini.Raw(t, locker.StorageKey("k")); req.TooOld && after != before {
				t.Errorf("the key holds %q, and held %q", after, before)
			}
			if isAsked := !req.Phases.Journal.Start.IsZero(); isAsked && test.policy.Journal == nil || !isAsked && test.kind == run.NotKept {
				t.Errorf("%+v", req.Phases)
			}
			hook.end(t, locker)
		})
	}
}

// begun is what a test of Begin has.
type begun struct {
	*testing.T
	mini   redistest.Backend
	client redis.UniversalClient // without the hook
	hook   *commands
	locker *lock.Locker
}

// claim claims the key, for the input 1.
func (w begun) claim(hold time.Duration) *lock.Lease {
	w.Helper()
	note := new(record.Codec).EncodeNote(nil, w.locker.StorageKey("k"), record.Note{Fingerprint: request(1).Fingerprints[0]})
	claim, err := w.locker.Claim(w.Context(), "k", note, hold)
	if err != nil || claim.State != lock.Granted {
		w.Fatal(claim, err)
	}
	w.Cleanup(claim.Lease.Abandon)
	return claim.Lease
}

// During a pause after a failure Redis is not asked. Whether there is one depends on the policy.
func TestPauses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		policy run.Policy
		asked  int
	}{
		"no":                    {run.Policy{}, 2},
		"open":                  {run.Policy{FailOpen: true}, 2},
		"asked for":             {run.Policy{Pauses: true}, 1},
		"journal":               {run.Policy{Journal: &outage{beginFails: true}}, 1},
		"journal, at most once": {run.Policy{Journal: &outage{beginFails: true}, AtMostOnce: true}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, hook := redistest.Mini(t).Client(t), &commands{}
			client.AddHook(hook)
			g, _ := newGuardOn(t, client, func(p *run.Policy) { *p = test.policy })
			asked := 0
			hook.set(func(string) error { asked++; return errRefused }, nil)
			for range 2 {
				if result := g.Begin(t.Context(), request(1)); result.Err == nil {
					t.Errorf("%+v", result)
				}
			}
			if asked != test.asked {
				t.Errorf("asked %d times, want %d", asked, test.asked)
			}
		})
	}
}

// late is a context whose deadline passes when passed is closed.
type late struct {
	context.Context
	passed chan struct{}
}

func (l late) Done() <-chan struct{} { return l.passed }

func (l late) Err() error {
	select {
	case <-l.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A run whose caller's deadline passes while the key is claimed does not begin, and frees the key.
func TestDeadlineWhileClaiming(t *testing.T) {
	t.Parallel()
	for name, j := range map[string]journal.Journal{"": nil, "journal": &fakeJournal{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, hook := redistest.Mini(t).Client(t), &commands{}
			client.AddHook(hook)
			g, locker := newGuardOn(t, client, func(p *run.Policy) { p.Journal = j })
			ctx := late{t.Context(), make(chan struct{})}
			pass := sync.OnceFunc(func() { close(ctx.passed) })
			hook.set(func(string) error { pass(); return nil }, nil)
			want(t, g.Begin(ctx, request(1)), run.NotBegun, run.OutcomeStoreUnavailable)
			wantFree(t, locker)
			hook.set(func(name string) error { t.Errorf("%s was sent", name); return nil }, nil)
			result := g.Begin(ctx, request(1))
			want(t, result, run.Unavailable, run.OutcomeStoreUnavailable)
			if !errors.Is(result.Err, context.DeadlineExceeded) {
				t.Error(result.Err)
			}
			hook.set(nil, nil)
		})
	}
}

// wantFree waits until the key "k" is free, for no longer than half a lease.
func wantFree(t *testing.T, locker *lock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if claim, err := locker.Wait(ctx, "k"); err != nil || claim.State != lock.Free {
		t.Errorf("%v, %v, want a free key", claim.State, err)
	}
}

// A run that may happen once at most keeps its key until the retention has passed. What is stored may be encrypted.
func TestClaimOfARun(t *testing.T) {
	t.Parallel()
	mini := redistest.Mini(t)
	g, locker := newGuardOn(t, mini.Client(t), func(p *run.Policy) { p.AtMostOnce, p.Codec.Keys = true, keys })
	r, _ := begin(t, g, &product{})
	want(t, g.Begin(t.Context(), request(1)), run.InFlight, run.OutcomeInFlight)
	wantNote(t, locker, record.Codec{Keys: keys}, false)
	if left := mini.Client(t).PTTL(t.Context(), locker.StorageKey("k")).Val(); left < time.Hour || !r.IsStrict() || r.Fence() != 0 {
		t.Errorf("the claim lasts for %v, the run is strict %v, with the fence %d", left, r.IsStrict(), r.Fence())
	}
	r.CutOff()
	r.Conclude(run.Ending{How: run.Interrupted})
	for key, want := range map[string]string{"": "", "k": locker.StorageKey("k")} {
		if got := g.StorageKey(&run.Request{Key: key}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := g.StorageKey(&run.Request{Key: "k", StorageKey: "set before"}); got != "set before" {
		t.Errorf("%q", got)
	}
}

// wantNote compares what the note of the claim says of a journal.
func wantNote(t *testing.T, locker *lock.Locker, codec record.Codec, isJournaled bool) {
	t.Helper()
	claim, err := locker.Look(t.Context(), "k")
	note, decodeErr := codec.DecodeNote(locker.StorageKey("k"), claim.Note)
	if err := errors.Join(err, decodeErr); err != nil || note.Journaled != isJournaled || note.Fingerprint != request(1).Fingerprints[0] {
		t.Errorf("%+v, %v", note, err)
	}
}

// Without Redis a run is protected by its row alone, which is not an error. A key that is too old is looked up in the
// journal.
func TestAlone(t *testing.T) {
	t.Parallel()
	alone(t, &standing{}, func(t *testing.T, g *run.Guard) {
		for range 2 {
			r, _ := begin(t, g, &product{})
			r.CutOff()
			if err := r.Conclude(run.Ending{How: run.Interrupted}).Err; err != nil || r.Fence() != 0 {
				t.Errorf("%v, fence %d", err, r.Fence())
			}
		}
		req := request(1)
		req.TooOld = true
		want(t, g.Begin(t.Context(), req), run.Expired, run.OutcomeExpiredKey)
	})
}

// An operation without a journal is no part of a run with one, even if that run's operation has called it.
func TestOutsideJournal(t *testing.T) {
	t.Parallel()
	alone(t, &standing{}, func(t *testing.T, g *run.Guard) {
		r, inside := begin(t, g, &product{})
		if _, _, ok := journal.FromContext(inside); !ok {
			t.Error("the operation is not inside")
		}
		if _, _, ok := journal.FromContext(run.OutsideJournal(inside, inside)); ok {
			t.Error("the other operation is inside")
		}
		if ctx := run.OutsideJournal(t.Context(), t.Context()); ctx != t.Context() {
			t.Errorf("%v was wrapped", ctx)
		}
		r.CutOff()
		r.Conclude(run.Ending{How: run.Interrupted})
	})
}

func TestDefaultPolicy(t *testing.T) {
	t.Parallel()
	p := run.DefaultPolicy(record.Door(1))
	if p.Retention != 24*time.Hour || p.MaxDuration != time.Minute || p.MaxWaiters != 1000 || p.Wait != 0 || p.Codec.Door != record.Door(1) {
		t.Errorf("%+v", p)
	}
}
