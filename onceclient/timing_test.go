package onceclient_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/onceclient"
)

// pauses returns the time between the tries.
func (f *fakeBase) pauses() (pauses []time.Duration) {
	for i := 1; i < len(f.at); i++ {
		pauses = append(pauses, f.at[i].Sub(f.at[i-1]))
	}
	return pauses
}

// The tries go on for 90 s, far longer than a run and its lease can last, and the last one begins when no more than the reserve
// is left, whatever Retry-After says.
func TestLimit(t *testing.T) {
	t.Parallel()
	for _, retryAfter := range []string{"", "7", "3600"} {
		for limit, opts := range map[time.Duration][]onceclient.Option{90 * time.Second: nil, 20 * time.Second: {onceclient.WithLimit(20 * time.Second)}} {
			synctest.Test(t, func(t *testing.T) {
				base, began := &fakeBase{steps: []step{problem(409, "in-flight", "Retry-After: "+retryAfter)}}, time.Now()
				_, _, err := send(t, t.Context(), base, opts...)
				e := gaveUp(t, err)
				if e.Attempts != base.tries() || e.Elapsed != time.Since(began) || e.Status != 409 || e.Problem != onceclient.InFlight || e.Err != nil || !e.Timeout() {
					t.Errorf("got %+v after %d tries", *e, base.tries())
				}
				if last := base.at[len(base.at)-1].Sub(began); last < limit-time.Second || last > limit || time.Since(began) > limit {
					t.Errorf("Retry-After %q: the last try was after %v, the end after %v", retryAfter, last, time.Since(began))
				}
				if onceclient.Quote(e.Key) != base.heads[0].Get("Idempotency-Key") || base.open != 0 {
					t.Errorf("another key than was sent, or %d response bodies were not closed", base.open)
				}
			})
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		longest, small := make([]time.Duration, 12), 0
		for range 200 {
			base := &fakeBase{steps: []step{fail}}
			_, _, err := send(t, t.Context(), base, onceclient.WithBackoff(time.Second, 10*time.Second))
			gaveUp(t, err)
			for i, pause := range base.pauses() {
				if bound := min(time.Second<<min(i, 10), 10*time.Second); pause > bound {
					t.Fatalf("pause %d is %v, the bound is %v", i+1, pause, bound)
				}
				if i < len(longest) {
					longest[i] = max(longest[i], pause)
				}
				if pause < 100*time.Millisecond {
					small++
				}
			}
		}
		// Full jitter comes near both ends of its range.
		for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
			if longest[i] < want*time.Second*8/10 {
				t.Errorf("the longest of 200 pauses %d is %v, the bound is %v", i+1, longest[i], want*time.Second)
			}
		}
		if small == 0 {
			t.Error("no pause is short")
		}
	})
}

func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()
	inSeven := func(req *http.Request) (*http.Response, error) {
		date := time.Now().Add(-time.Hour) // the server's clock is late
		return answer(503, "", "Date: "+date.UTC().Format(http.TimeFormat), "Retry-After: "+date.Add(7*time.Second).UTC().Format(http.TimeFormat))(req)
	}
	tests := map[string]struct {
		first    step
		opts     []onceclient.Option
		min, max time.Duration
	}{
		"seconds":     {answer(503, "", "Retry-After: 7"), nil, 7 * time.Second, 8 * time.Second},
		"of a 409":    {problem(409, "in-flight", "Retry-After: 7"), nil, 7 * time.Second, 8 * time.Second},
		"date":        {inSeven, nil, 7 * time.Second, 8 * time.Second},
		"too long":    {answer(429, "", "Retry-After: 3600"), nil, 15 * time.Second, 16 * time.Second},
		"overflowing": {answer(429, "", "Retry-After: "+strings.Repeat("9", 100)), nil, 15 * time.Second, 16 * time.Second},
		"own cap":     {answer(429, "", "Retry-After: 7"), []onceclient.Option{onceclient.WithMaxRetryAfter(2 * time.Second)}, 2 * time.Second, 3 * time.Second},
		"never cut":   {answer(503, "", "Retry-After: 9223372036"), []onceclient.Option{onceclient.WithMaxRetryAfter(math.MaxInt64)}, 89 * time.Second, 89 * time.Second},
		"none":        {answer(503, ""), nil, 0, time.Second},
		"invalid":     {answer(503, "", "Retry-After: soon"), nil, 0, time.Second},
		"negative":    {answer(503, "", "Retry-After: -7"), nil, 0, time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &fakeBase{steps: []step{test.first, created}}
				if _, _, err := send(t, t.Context(), base, test.opts...); err != nil {
					t.Fatal(err)
				}
				if pause := base.pauses()[0]; pause < test.min || pause > test.max {
					t.Errorf("pause %v, want %v to %v", pause, test.min, test.max)
				}
			})
		})
	}
}

func TestTryTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen []onceclient.Attempt
		base := &fakeBase{steps: []step{hang, created}}
		_, body, err := send(t, t.Context(), base, onceclient.WithTryTimeout(5*time.Second),
			onceclient.WithObserver(func(_ context.Context, a onceclient.Attempt) { seen = append(seen, a) }))
		if err != nil || body != "done" {
			t.Fatalf("got %q, %v", body, err)
		}
		var timeout interface{ Timeout() bool }
		if len(seen) != 2 || !errors.As(seen[0].Err, &timeout) || !timeout.Timeout() || seen[0].Duration != 5*time.Second ||
			!seen[0].Again || seen[1].Again || seen[1].Status != 201 || seen[1].Pause != 0 || seen[1].Number != 2 {
			t.Errorf("the observer saw %+v", seen)
		}
		if pause := base.pauses()[0]; pause != seen[0].Duration+seen[0].Pause {
			t.Errorf("the second try began %v after the first; the observer saw %+v", pause, seen[0])
		}
	})
}

// A cancelled context ends it at once: during a try, in a pause, before the first try.
func TestCancelled(t *testing.T) {
	t.Parallel()
	reason := errors.New("the user has left")
	for name, first := range map[string]step{"try": hang, "pause": answer(503, "", "Retry-After: 10")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(3*time.Second, func() { cancel(reason) })
				base := &fakeBase{steps: []step{first}}
				began := time.Now()
				_, _, err := send(t, ctx, base)
				if took := time.Since(began); took != 3*time.Second {
					t.Errorf("it ended after %v", took)
				}
				e := gaveUp(t, err)
				if !errors.Is(err, context.Canceled) || !errors.Is(err, reason) || e.Timeout() || e.Attempts != 1 || base.tries() != 1 {
					t.Errorf("got %v after %d tries", err, base.tries())
				}
				if base.open != 0 {
					t.Errorf("%d response bodies were not closed", base.open)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		base := &fakeBase{steps: []step{created}}
		_, _, err := send(t, ctx, base)
		var e *onceclient.GaveUpError
		if !errors.Is(err, context.Canceled) || errors.As(err, &e) || base.tries() != 0 {
			t.Errorf("cancelled before: got %v after %d tries", err, base.tries())
		}
	})
}

// The error reaches the caller whole although a deadline has ended it, also that of http.Client.Timeout, which would
// otherwise replace it.
func TestDeadline(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]step{
		"no response": hang, "refused": fail, "in flight": problem(409, "in-flight", "Retry-After: 10"), "breaks off": broken(201, "hal"),
	} {
		for _, ofClient := range []time.Duration{0, 20 * time.Second} { // or else of the context
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second+ofClient)
				defer cancel()
				base, began := &fakeBase{steps: []step{first}}, time.Now()
				client := &http.Client{Transport: onceclient.New(base), Timeout: ofClient}
				_, _, err := do(t, client, post(t, ctx, "http://shop.test/orders", strings.NewReader("book")))
				e := gaveUp(t, err)
				var timeout interface{ Timeout() bool }
				if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() || e.Key == "" || base.open != 0 {
					t.Errorf("%s: got %v with %d open bodies", name, err, base.open)
				}
				if took := time.Since(began); took < 18*time.Second || took >= 20*time.Second || name != "no response" && base.tries() < 2 {
					t.Errorf("%s: %d tries took %v", name, base.tries(), took)
				}
			})
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, value := range []string{"0", "120", "-1", "1e9", "99999999999999999999", "Sun, 22 Nov 2026 12:00:07 GMT", "Sunday, 22-Nov-26 12:00:07 GMT", " 7 "} {
		f.Add(value, "Sun, 22 Nov 2026 12:00:00 GMT")
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		h := http.Header{"Retry-After": {value}, "Date": {date}}
		got := onceclient.RetryAfter(h, now)
		if got < 0 {
			t.Errorf("%q: %v", value, got)
		}
		if n, err := strconv.ParseUint(value, 10, 31); err == nil && strings.Trim(value, "0123456789") == "" && got != time.Duration(n)*time.Second {
			t.Errorf("%q: got %v", value, got)
		}
	})
}

// An unknown outcome that the server may still learn is repeated as told, and another one ends the call.
func TestUnknownOutcomeIsAwaited(t *testing.T) {
	t.Parallel()
	unknown := func(h ...string) step { return problem(409, "outcome-unknown", h...) }
	learning := unknown("X-Should-Retry: true", "Retry-After: 30")
	for name, test := range map[string]struct {
		steps  []step
		limit  time.Duration
		tries  int
		status int // 0: a GaveUpError
	}{
		"it is learnt":            {[]step{learning, learning, answer(201, "ok")}, 5 * time.Minute, 3, 201},
		"it stays unknown":        {[]step{learning, unknown("X-Should-Retry: false")}, 5 * time.Minute, 2, 409},
		"it is final at once":     {[]step{unknown("X-Should-Retry: false"), answer(201, "ok")}, 5 * time.Minute, 1, 409},
		"it says nothing":         {[]step{unknown(), answer(201, "ok")}, 5 * time.Minute, 1, 409},
		"the limit is too short":  {[]step{learning}, 90 * time.Second, 4, 0},
		"the pause is too long":   {[]step{unknown("X-Should-Retry: true", "Retry-After: 300")}, 90 * time.Second, 2, 0},
		"at the limit, it is not": {[]step{unknown("X-Should-Retry: true", "Retry-After: 300"), answer(201, "ok")}, 90 * time.Second, 2, 201},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base, began := &fakeBase{steps: test.steps}, time.Now()
				resp, _, err := send(t, t.Context(), base, onceclient.WithLimit(test.limit))
				if test.status == 0 {
					if e := gaveUp(t, err); e.Problem != onceclient.OutcomeUnknown {
						t.Errorf("got %v", e)
					}
				} else if err != nil || resp.StatusCode != test.status {
					t.Errorf("got %v, %v, want %d", resp, err, test.status)
				}
				if base.tries() != test.tries || time.Since(began) > test.limit {
					t.Errorf("%d tries in %v, want %d", base.tries(), time.Since(began), test.tries)
				}
				pauses := base.pauses()
				for i, pause := range pauses {
					if last := i == len(pauses)-1 && time.Since(began) > test.limit-2*time.Second; !last && pause < 30*time.Second {
						t.Errorf("pause %d is %v, want 30 s", i+1, pause)
					}
				}
			})
		})
	}
}
