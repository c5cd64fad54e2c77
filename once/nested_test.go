package once_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/once"
)

// answers are the errors of Do that tell a consumer what to do with its message.
func answers() map[string]error {
	all := map[string]error{"StoredError": new(once.StoredError)}
	for _, reason := range []error{
		once.ErrInFlight, once.ErrFailed, once.ErrUnavailable, once.ErrNotKnownYet, once.ErrReused, once.ErrNotStored,
		once.ErrOutcomeUnknown, once.ErrUnreadable, once.ErrInvalidKey,
	} {
		all[reason.Error()], all["a Refused: "+reason.Error()] = reason, &once.Refused{Reason: reason}
	}
	return all
}

// wrapped returns err as it is, and as others pass it on.
func wrapped(err error) map[string]error {
	return map[string]error{
		"itself": err, "deep": fmt.Errorf("outer: %w", err), "joined": errors.Join(errDeclined, err), "marked": once.NothingHappened(err),
		"marked deep": fmt.Errorf("outer: %w", once.Final(err)), "marked twice": once.Unknown(once.Final(err)),
	}
}

// An error that f returns is never taken for Do's own answer, and carries no mark. It keeps its text, and what else errors.Is
// and errors.As find in it.
func TestForeignErrors(t *testing.T) {
	t.Parallel()
	for name, answer := range answers() {
		for how, err := range wrapped(answer) {
			got := once.ForeignOf(err)
			if errors.As(got, new(*once.Refused)) || errors.As(got, new(*once.StoredError)) || got.Error() != err.Error() || once.HasMark(got) {
				t.Errorf("%s, %s: %#v, want the text %q, and neither a Refused, a StoredError nor a mark", name, how, got, err)
			}
			for _, other := range answers() {
				if errors.Is(got, other) {
					t.Errorf("%s, %s: it is %v", name, how, other)
				}
			}
			if how == "joined" && !errors.Is(got, errDeclined) {
				t.Errorf("%s, %s: it is no %v", name, how, errDeclined)
			}
			if unmarked := once.Unmark(err); once.HasMark(unmarked) || !errors.Is(unmarked, answer) || unmarked.Error() != err.Error() {
				t.Errorf("%s, %s: unmarked %#v", name, how, unmarked)
			}
		}
	}
	for how, err := range wrapped(typedError{}) {
		if got := once.ForeignOf(err); !errors.As(got, new(typedError)) || once.HasMark(got) || got.Error() != err.Error() {
			t.Errorf("%s: %#v", how, got)
		}
	}
	for _, err := range []error{nil, errDeclined, fmt.Errorf("it is %w", errDeclined)} {
		if once.ForeignOf(err) != err || once.ForeignOf(once.Unknown(err)) != err || once.Unmark(err) != err {
			t.Errorf("%v is changed", err)
		}
	}
}

// typedError is an error of another package.
type typedError struct{}

func (typedError) Error() string { return "typed" }

// marked is an Input that has no JSON: its error claims that nothing has happened.
type marked struct{}

func (marked) MarshalJSON() ([]byte, error) { return nil, once.NothingHappened(errDeclined) }

// Only what f itself returns carries a mark.
//
// fault: a context's cause, or the error of an Input, is marked NothingHappened, and a function returns what an inner Do or a
// Resolve has made of it, after its effect. Expected: that error frees no key
func TestMarkOfWhatDoWraps(t *testing.T) {
	t.Parallel()
	d := open(t, redistest.Mini(t), once.WithCancel())
	mark := once.NothingHappened(errDeclined)
	ended, end := context.WithCancelCause(t.Context())
	end(fmt.Errorf("stop: %w", mark))
	var inside error
	ctx, cancel := context.WithCancelCause(t.Context())
	returned := d.doIn(ctx, func(ctx context.Context) (receipt, error) {
		cancel(mark)
		<-ctx.Done()
		inside = context.Cause(ctx)
		return receipt{}, inside
	}).err
	d.event("freed")
	for name, err := range map[string]error{
		"the cause of the caller's context":   d.doIn(ended, d.charge, id("2")).err,
		"the Event":                           d.event("store-unavailable").Err,
		"the cause of the function's context": inside,
		"what the function returns":           returned,
		"Resolve":                             d.guard.Resolve(ended, d.locker.StorageKey("k"), "another", receipt{}, nil),
	} {
		if once.HasMark(err) || !errors.Is(err, errDeclined) {
			t.Errorf("%s: %#v, want %v without a mark", name, err, errDeclined)
		}
	}
	if err := d.do(d.charge, input(marked{})).err; once.HasMark(err) || err == nil {
		t.Errorf("the error of an Input: %#v", err)
	}
	d.wantRuns(1)
}

// A refusal that a later call may not get is never the result of the function that passes it on.
//
// fault: a consumer's function, which runs at most once, returns that an inner Do is in flight. Expected: the message is
// neither acknowledged nor run again at once, unless the function has said what has happened
func TestRefusalOfAnInnerDo(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	outer, inner := open(t, b, once.WithAtMostOnce()), open(t, b)
	inner.do(fails(once.Unknown(errDeclined)), id("inner"))
	passOn := func(ctx context.Context) (receipt, error) {
		return receipt{}, inner.doIn(ctx, inner.charge, id("inner")).err
	}
	var between error
	a := outer.do(func(ctx context.Context) (receipt, error) {
		between = inner.doIn(ctx, passOn, id("between")).err // a third Do returns it, and then it is its error
		return receipt{}, between
	})
	if e := outer.wantError(a, once.ErrInFlight.Error(), false, "unknown"); e.Err == nil {
		t.Error("the Event has no error")
	}
	outer.wantRefused(outer.do(outer.charge), once.ErrInFlight, "in-flight")

	for name, c := range map[string]struct {
		err  error
		want run.How
	}{
		"itself":         {between, run.Refused},
		"deep":           {fmt.Errorf("inner: %w", between), run.Refused},
		"joined":         {errors.Join(errDeclined, between), run.Refused},
		"marked":         {once.Final(between), run.Whole},
		"not retryable":  {&once.Refused{Reason: once.ErrReused}, run.Whole},
		"the text alone": {errors.New(between.Error()), run.Whole},
	} {
		if got := outer.guard.HowItEnds(c.err); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// A Do with the key that its caller runs under is a duplicate, and its refusal is not that of the outer Do.
func TestInnerDoWithTheSameKey(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		d := open(t, b)
		a := d.do(func(ctx context.Context) (receipt, error) {
			a := d.doIn(ctx, d.charge)
			d.wantRefused(a, once.ErrInFlight, "in-flight")
			return receipt{}, a.err
		})
		if a.err == nil || errors.Is(a.err, once.ErrInFlight) || a.err.Error() != once.ErrInFlight.Error() {
			t.Errorf("%+v, want the text of ErrInFlight", a)
		}
		d.event("freed")
		d.wantRuns(1)
	})
}

// Each kind of refusal of the engine has a reason. ErrUnavailable invites its caller to do the work in another way, so it is
// never the answer after f has run.
//
// fault: a COMMIT without a reply; a run whose key another call has taken, whose result is not confirmed
func TestReasons(t *testing.T) {
	t.Parallel()
	if kinds := once.UnreasonedKinds(); len(kinds) > 0 {
		t.Errorf("without a reason: %v", kinds)
	}
	for kind := run.InFlight; kind < run.KindCount; kind++ {
		if reason := once.Reason(kind, run.OutcomeLeaseLost); reason == once.ErrUnavailable {
			t.Errorf("a run that has lost its key gets ErrUnavailable for the kind %v", kind)
		}
	}
	for kind, want := range map[run.Kind]error{
		run.InFlight: once.ErrInFlight, run.NoRecord: once.ErrFailed, run.Reused: once.ErrReused, run.NotKept: once.ErrNotStored,
		run.UnknownNotKept: once.ErrOutcomeUnknown, run.Unknown: once.ErrOutcomeUnknown, run.UnknownYet: once.ErrOutcomeUnknown,
		run.FingerprintChanged: once.ErrUnreadable, run.Unreadable: once.ErrUnreadable, run.Unavailable: once.ErrUnavailable,
		run.Unconfirmed: once.ErrUnavailable, run.NotBegun: once.ErrUnavailable, run.CommitUnknown: once.ErrNotKnownYet,
	} {
		if reason := once.Reason(kind, kind.Answer().Outcome); reason != want {
			t.Errorf("kind %v: %v, want %v", kind, reason, want)
		}
	}
}
