package run_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// The tests of this file but the last move time. Their Guards have no Redis: the journal alone protects their runs.

// errDown is the error of a journal whose database does not answer.
var errDown = errors.New("the database does not answer")

// outage is an intent journal that fails while a flag is set.
type outage struct {
	delay    time.Duration // of Begin
	endTakes time.Duration
	endErr   error // of an End that fails; nil: errDown

	lookFails bool

	mu                   sync.Mutex // guards the fields below
	beginFails, endFails bool
	ends                 []endCall
	asking, most         int // Ends at the same time, now and at most since the last time
}

// calls sets whether End fails, and returns the calls of End since the last time. It waits for those that are on their way,
// so that none belongs to both times.
func (o *outage) calls(endFails bool) []endCall {
	for o.mu.Lock(); o.asking > 0; o.mu.Lock() {
		o.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	defer o.mu.Unlock()
	ends := o.ends
	o.endFails, o.ends, o.most = endFails, nil, 0
	return ends
}

// endCall is a call of End.
type endCall struct {
	at     time.Time
	token  string
	isFree bool
	keep   time.Duration
	size   int // of the record
}

func (*outage) Namespace() string { return "test" }

func (*outage) IsIntent() bool { return true }

func (o *outage) Begin(_ context.Context, r journal.Run) (journal.Entry, error) {
	time.Sleep(o.delay)
	if o.beginFails {
		return journal.Entry{}, errDown
	}
	return journal.Entry{State: journal.Begun, Token: r.Token}, nil
}

func (o *outage) End(_ context.Context, r journal.Run, record []byte, keep time.Duration) (journal.Entry, error) {
	o.mu.Lock()
	o.asking++
	o.most = max(o.most, o.asking)
	o.mu.Unlock()
	time.Sleep(o.endTakes)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asking--
	o.ends = append(o.ends, endCall{time.Now(), r.Token, record == nil, keep, len(record)})
	switch {
	case o.endFails && o.endErr != nil:
		return journal.Entry{}, o.endErr
	case o.endFails:
		return journal.Entry{}, errDown
	case record == nil:
		return journal.Entry{}, nil
	}
	return journal.Entry{State: journal.Done, Token: r.Token, Record: record, Left: keep}, nil
}

func (o *outage) Look(context.Context, string) (journal.Entry, error) {
	if o.lookFails {
		return journal.Entry{}, errDown
	}
	return journal.Entry{}, nil
}

// inBubble runs test, whose time it moves, with a Guard whose records are kept for retention.
func inBubble(t *testing.T, o *outage, retention time.Duration, test func(t *testing.T, g *run.Guard, locker *lock.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		locker := lock.None("test")
		test(t, run.New("run", locker, run.Policy{Retention: retention, MaxDuration: time.Minute, Journal: o}), locker)
		if err := locker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// conclude runs an operation that leaves p, and returns the result.
func conclude(t *testing.T, g *run.Guard, p *product) run.Result {
	t.Helper()
	r, _ := begin(t, g, p)
	r.CutOff()
	return r.Conclude(run.Ending{How: run.Whole})
}

// later lets d pass, and what is due in that time happen.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// An End that fails is sent again, with pauses that grow to 1 s, for as long as a record would be kept, and for an hour at
// most. The record is kept for what is left of its time.
func TestEndIsSentAgain(t *testing.T) {
	for name, test := range map[string]struct {
		retention, limit time.Duration
		product          product
		discards         bool
	}{
		"a record":                      {10 * time.Minute, 10 * time.Minute, product{keeps: true}, false},
		"a record that is kept longer":  {2 * time.Hour, time.Hour, product{keeps: true}, false},
		"to free a row, whatever it is": {10 * time.Minute, time.Hour, product{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := &outage{endFails: true}
			inBubble(t, o, test.retention, func(t *testing.T, g *run.Guard, _ *lock.Locker) {
				r, _ := begin(t, g, &test.product)
				if test.discards {
					_ = r.Control().Discard()
				}
				start := time.Now()
				r.CutOff()
				if err := r.Conclude(run.Ending{How: run.Whole}).Err; !errors.Is(err, lock.ErrPending) || !errors.Is(err, errDown) {
					t.Errorf("%v, want the journal's error, and that it is pending", err)
				}
				later(3 * time.Hour)
				ends := o.calls(true)
				gap := time.Duration(0)
				for i, e := range ends[1:] {
					before := gap
					if gap = e.at.Sub(ends[i].at); gap > time.Second || i > 0 && gap < before/2 && gap < time.Second/2 {
						t.Errorf("the pause before try %d is %v, after one of %v", i+2, gap, before)
					}
					if want := test.retention - e.at.Sub(start); e.isFree != test.discards || e.keep != want {
						t.Errorf("try %d: %+v, want to keep for %v", i+2, e, want)
					}
				}
				if second, ninth := ends[2].at.Sub(ends[1].at), ends[10].at.Sub(ends[9].at); second > 40*time.Millisecond || ninth < time.Second/2 {
					t.Errorf("the second pause is %v, the ninth %v", second, ninth)
				}
				if first := ends[1].at.Sub(start); first < 10*time.Millisecond || first > 20*time.Millisecond {
					t.Errorf("the first pause is %v", first)
				}
				if last := ends[len(ends)-1].at.Sub(start); last >= test.limit || last < test.limit-time.Second {
					t.Errorf("the last of %d tries is after %v, want up to %v", len(ends), last, test.limit)
				}
			})
		})
	}
}

// When the database answers again, all pending Ends follow, a few at a time. During the outage no more than these few ask.
func TestPendingEndsFollow(t *testing.T) {
	const runs, takes = 200, 10 * time.Millisecond
	o := &outage{endFails: true, endTakes: takes}
	inBubble(t, o, time.Hour, func(t *testing.T, g *run.Guard, _ *lock.Locker) {
		for i := range runs {
			r, _ := begin(t, g, &product{keeps: true})
			r.CutOff()
			if err := r.Conclude(run.Ending{How: run.Whole}).Err; !errors.Is(err, lock.ErrPending) {
				t.Errorf("run %d: %v", i, err)
			}
		}
		later(time.Minute)
		o.calls(false)
		later(time.Second + runs/4*takes)
		ended := map[string]bool{}
		most := o.most
		for _, e := range o.calls(false) {
			ended[e.token] = true
		}
		if len(ended) != runs || most > 4 {
			t.Errorf("%d of %d have ended, %d at a time", len(ended), runs, most)
		}
	})
}

// A row that is handed out keeps no other End waiting.
func TestHandedOutKeepsNoTurn(t *testing.T) {
	o := &outage{endErr: journal.ErrHandedOut, endFails: true}
	inBubble(t, o, time.Hour, func(t *testing.T, g *run.Guard, _ *lock.Locker) {
		for range 50 {
			conclude(t, g, &product{keeps: true})
		}
		o.calls(true)
		later(10 * time.Second)
		asked := map[string]int{}
		for _, e := range o.calls(false) {
			asked[e.token]++
		}
		if len(asked) != 50 {
			t.Errorf("%d of 50 runs were asked for", len(asked))
		}
		for token, n := range asked {
			if n < 10 {
				t.Errorf("run %s: %d tries in ten seconds", token, n)
			}
		}
	})
}

// A run that is given up makes way for the others.
func TestGivenUpKeepsNoTurn(t *testing.T) {
	o := &outage{endFails: true}
	inBubble(t, o, time.Hour, func(t *testing.T, g *run.Guard, _ *lock.Locker) {
		for range 50 {
			conclude(t, g, &product{keeps: true})
		}
		later(3 * time.Hour)
		conclude(t, g, &product{keeps: true})
		o.calls(false)
		later(time.Minute)
		if ends := o.calls(false); len(ends) != 1 {
			t.Errorf("%d have ended, want 1", len(ends))
		}
	})
}

// Close ends the pause before the next try, which is the last one.
func TestCloseTriesOnceMore(t *testing.T) {
	o := &outage{endFails: true}
	inBubble(t, o, time.Hour, func(t *testing.T, g *run.Guard, locker *lock.Locker) {
		conclude(t, g, &product{keeps: true})
		later(10 * time.Minute)
		o.calls(true)
		closed := time.Now()
		if err := locker.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if ends := o.calls(true); len(ends) != 1 || !ends[0].at.Equal(closed) {
			t.Errorf("%+v, want one more try, at %v", ends, closed)
		}
	})
}

// Records of 64 MiB in all, each counted with 16 KiB more, wait for the journal. They count no longer when it has them. A
// tombstone waits in place of a record for which there is no room.
//
// fault: a journal does not answer, pending records exceed 64 MiB
func TestPendingRecordsAreBounded(t *testing.T) {
	o := &outage{}
	inBubble(t, o, 2*time.Hour, func(t *testing.T, g *run.Guard, _ *lock.Locker) {
		empty := conclude(t, g, &product{keeps: true}).Size
		most := 64<<20 - 16<<10 - empty
		for range 2 {
			o.calls(true)
			records := []struct {
				size    int
				isWhole bool
			}{{most + 1, false}, {most, true}, {2 << 10, false}, {0, true}} // the small one has room of its own
			for _, r := range records {
				err := conclude(t, g, &product{keeps: true, body: strings.Repeat("b", r.size)}).Err
				if !errors.Is(err, lock.ErrPending) || !errors.Is(err, errDown) {
					t.Errorf("%d bytes: %v, want it to be pending", r.size, err)
				}
			}
			var tokens []string
			for _, e := range o.calls(false) {
				tokens = append(tokens, e.token)
			}
			later(time.Minute)
			ends := o.calls(false)
			if len(tokens) != len(records) || len(ends) != len(records) {
				t.Fatalf("%d runs have called End, then %d, want %d", len(tokens), len(ends), len(records))
			}
			for _, e := range ends {
				r := records[slices.Index(tokens, e.token)]
				if isWhole := e.size == empty+r.size; isWhole != r.isWhole || !isWhole && e.size > 1<<10 {
					t.Errorf("%d bytes are stored in place of %d", e.size, empty+r.size)
				}
			}
		}
	})
}

// The small records that wait for the journal, and the tombstones in place of large ones, have a bound of their own.
func TestSmallPendingRecordsAreBounded(t *testing.T) {
	o := &outage{endFails: true}
	inBubble(t, o, time.Hour, func(t *testing.T, g *run.Guard, _ *lock.Locker) {
		n := 0
		for ; n <= 4096; n++ {
			if !errors.Is(conclude(t, g, &product{keeps: true}).Err, lock.ErrPending) {
				break
			}
		}
		if n < 4000 || n > 4096 {
			t.Errorf("%d small records are pending, want up to 4096", n)
		}
		if err := conclude(t, g, &product{keeps: true, body: strings.Repeat("b", 1<<20)}).Err; !errors.Is(err, lock.ErrPending) {
			t.Errorf("a large record: %v, want it to be pending", err)
		}
		o.calls(false)
		later(time.Minute)
		if err := conclude(t, g, &product{keeps: true}).Err; err != nil {
			t.Error(err)
		}
	})
}

// A Begin that failed is undone twice, the second time 3 s after the first, and that also if the first undoing failed before.
func TestBeginIsUndoneTwice(t *testing.T) {
	o := &outage{beginFails: true, endFails: true}
	inBubble(t, o, time.Hour, func(t *testing.T, g *run.Guard, _ *lock.Locker) {
		want(t, g.Begin(t.Context(), request(1)), run.NotBegun, run.OutcomeStoreUnavailable)
		later(time.Minute)
		failed := o.calls(false)
		later(time.Hour)
		done := o.calls(false)
		if len(failed) < 3 || len(done) != 2 || !done[1].isFree || done[1].token != failed[0].token {
			t.Fatalf("%d tries, then %+v; want two more", len(failed), done)
		}
		if gap := done[1].at.Sub(done[0].at); gap < 3*time.Second || gap > 3*time.Second+20*time.Millisecond {
			t.Errorf("the second undoing is %v after the first, want 3 s", gap)
		}
	})
}

// 4,096 runs are undone at a time. One that is undone makes room for another.
func TestUndoingIsBounded(t *testing.T) {
	o := &outage{beginFails: true, endFails: true}
	inBubble(t, o, time.Hour, func(t *testing.T, g *run.Guard, _ *lock.Locker) {
		for range 2 {
			o.calls(true)
			for range 4096 + 2 {
				g.Begin(t.Context(), request(1))
			}
			o.calls(false)
			later(2 * time.Minute)
			tokens := map[string]bool{}
			for _, e := range o.calls(false) {
				tokens[e.token] = true
			}
			if len(tokens) != 4096 {
				t.Errorf("%d runs were undone, want 4096", len(tokens))
			}
		}
	})
}

// A run that would be over when its Begin has returned does not begin, and its row is freed.
func TestBeginThatTakesTooLong(t *testing.T) {
	for delay, kind := range map[time.Duration]run.Kind{time.Second - 1: run.Begun, time.Second: run.NotBegun} {
		o := &outage{delay: delay}
		inBubble(t, o, time.Hour, func(t *testing.T, g *run.Guard, _ *lock.Locker) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			result := g.Begin(ctx, request(1))
			if result.Kind != kind || errors.Is(result.Err, context.DeadlineExceeded) != (kind == run.NotBegun) {
				t.Errorf("after %v: %+v, want %v", delay, result, kind)
			}
			later(time.Minute)
			if ends := o.calls(false); (len(ends) == 2 && ends[0].isFree) != (kind == run.NotBegun) {
				t.Errorf("after %v: %+v", delay, ends)
			}
		})
	}
}

// A caller whose deadline passes meanwhile learns of the journal's error, or of the other run.
func TestBeginThatTakesTooLongInVain(t *testing.T) {
	inBubble(t, &outage{delay: time.Second, beginFails: true}, time.Hour, func(t *testing.T, g *run.Guard, _ *lock.Locker) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if result := g.Begin(ctx, request(1)); result.Kind != run.NotBegun || !errors.Is(result.Err, errDown) {
			t.Errorf("%+v", result)
		}
	})
	alone(t, &standing{entry: theirs(), takes: time.Second}, func(t *testing.T, g *run.Guard) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want(t, g.Begin(ctx, request(1)), run.Stored, run.OutcomeReplayed)
	})
}

// The undoing of a Begin is given up after an hour.
func TestUndoingIsGivenUp(t *testing.T) {
	o := &outage{beginFails: true, endFails: true}
	inBubble(t, o, time.Hour, func(t *testing.T, g *run.Guard, _ *lock.Locker) {
		start := time.Now()
		g.Begin(t.Context(), request(1))
		later(3 * time.Hour)
		ends := o.calls(true)
		if last := ends[len(ends)-1].at.Sub(start); last >= time.Hour || last < time.Hour-time.Second {
			t.Errorf("the last try is after %v", last)
		}
	})
}

// An End that frees a row is sent again until the journal has answered. Then the key is released at once.
func TestKeyIsReleasedAfterALateEnd(t *testing.T) {
	t.Parallel()
	o := &outage{endFails: true}
	g, locker := newGuard(t, func(p *run.Policy) { p.Journal = o })
	if err := conclude(t, g, &product{}).Err; !errors.Is(err, lock.ErrPending) {
		t.Errorf("%v, want that it is pending", err)
	}
	o.calls(false)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // half a lease
	defer cancel()
	if claim, err := locker.Wait(ctx, "k"); err != nil || claim.State != lock.Free {
		t.Errorf("%v, %v, want a free key", claim.State, err)
	}
}
