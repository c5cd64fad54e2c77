package onceclient_test

import (
	"context"
	"errors"
	"fmt"
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
		for _, limit := range []time.Duration{90 * time.Second, 20 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				base, began := &fakeBase{steps: []step{problem(409, "in-flight", "Retry-After: "+retryAfter)}}, time.Now()
				_, _, err := send(t, t.Context(), base, onceclient.WithLimit(limit))
				e := gaveUp(t, err)
				if e.Attempts != base.tries() || e.Status != 409 || !strings.HasSuffix(e.Problem, ":in-flight") ||
					e.Err != nil || !e.Timeout() {
					t.Errorf("got %+v after %d tries", *e, base.tries())
				}
				if want := fmt.Sprintf("unknown after %d tries in %v, last status 409", base.tries(), time.Since(began).Round(time.Millisecond)); !strings.HasSuffix(e.Error(), want) {
					t.Errorf("%v, want %s", e, want)
				}
				if last := base.at[len(base.at)-1].Sub(began); last < limit-time.Second || last > limit || time.Since(began) > limit {
					t.Errorf("Retry-After %q: the last try was after %v, the end after %v", retryAfter, last, time.Since(began))
				}
				if onceclient.Quote(e.Key) != base.key() || base.open != 0 {
					t.Errorf("another key than was sent, or %d response bodies were not closed", base.open)
				}
			})
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var longest [7]time.Duration // of each pause
		shortest := time.Hour
		for range 100 {
			base := &fakeBase{steps: []step{fail}}
			_, _, err := send(t, t.Context(), base, onceclient.WithBackoff(time.Second, 10*time.Second))
			gaveUp(t, err)
			for i, pause := range base.pauses()[:len(longest)] {
				longest[i], shortest = max(longest[i], pause), min(shortest, pause)
			}
		}
		// Full jitter comes near both ends of its range.
		for i, bound := range []time.Duration{1, 2, 4, 8, 10, 10, 10} {
			if longest[i] < bound*time.Second*8/10 || longest[i] > bound*time.Second+1 {
				t.Errorf("the longest of 100 pauses %d is %v, the bound is %v", i+1, longest[i], bound*time.Second)
			}
		}
		if shortest > 100*time.Millisecond {
			t.Errorf("the shortest pause is %v", shortest)
		}
	})
}

// The pause after the first try: Retry-After is obeyed, and cut if it is long, except with an outcome that the server may still
// learn.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	inSeven := func(req *http.Request) (*http.Response, error) {
		date := time.Now().Add(-time.Hour) // the server's clock is late
		return answer(503, "", "Date: "+date.UTC().Format(http.TimeFormat), "Retry-After: "+date.Add(7*time.Second).UTC().Format(http.TimeFormat))(req)
	}
	const isLearning = "X-Should-Retry: true"
	for name, test := range map[string]struct {
		first    step
		min, max time.Duration // in seconds
	}{
		"seconds":                {answer(503, "", "Retry-After: 7"), 7, 8},
		"of a 409":               {problem(409, "in-flight", "Retry-After: 7"), 7, 8},
		"date":                   {inSeven, 7, 8},
		"too long":               {answer(429, "", "Retry-After: 3600"), 15, 16},
		"overflowing":            {answer(429, "", "Retry-After: "+strings.Repeat("9", 100)), 15, 16},
		"none":                   {answer(503, ""), 0, 1},
		"invalid":                {answer(503, "", "Retry-After: soon"), 0, 1},
		"negative":               {answer(503, "", "Retry-After: -7"), 0, 1},
		"an outcome":             {problem(409, "outcome-unknown", isLearning, "Retry-After: 30"), 30, 31},
		"an outcome, too late":   {problem(409, "outcome-unknown", isLearning, "Retry-After: 300"), 89, 89},
		"an outcome, the latest": {problem(409, "outcome-unknown", isLearning, "Retry-After: 9223372036"), 89, 89},
	} {
		synctest.Test(t, func(t *testing.T) {
			base := &fakeBase{steps: []step{test.first, created}}
			if _, _, err := send(t, t.Context(), base); err != nil {
				t.Fatal(name, err)
			}
			if pause := base.pauses()[0]; pause < test.min*time.Second || pause > test.max*time.Second {
				t.Errorf("%s: pause %v, want %d to %d s", name, pause, test.min, test.max)
			}
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
		if err != nil || body != "done" || len(seen) != 2 {
			t.Fatalf("got %q, %v; the observer saw %+v", body, err, seen)
		}
		if a, b := seen[0], seen[1]; !isTimeout(a.Err) || a.Duration != 5*time.Second || a.Pause != base.pauses()[0]-a.Duration || a.Pause == 0 ||
			b.Number != 2 || b.Status != 201 || b.Pause != 0 {
			t.Errorf("the observer saw %+v; the pauses are %v", seen, base.pauses())
		}
	})
}

// A cancelled context ends it at once: during a try, in a pause, before the first try.
func TestCancelled(t *testing.T) {
	t.Parallel()
	reason := errors.New("the user has left")
	for name, test := range map[string]struct {
		first step
		after time.Duration
	}{"try": {hang, 3 * time.Second}, "pause": {answer(503, "", "Retry-After: 10"), 3 * time.Second}, "before": {created, 0}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			tries := 1
			if test.after > 0 {
				time.AfterFunc(test.after, func() { cancel(reason) })
			} else {
				cancel(reason)
				tries = 0
			}
			base, began, b := &fakeBase{steps: []step{test.first}}, time.Now(), newBody(strings.NewReader("book"))
			_, _, err := do(t, &http.Client{Transport: onceclient.New(base)}, postBody(t, ctx, b, 4))
			<-b.closed
			if took := time.Since(began); took != test.after || base.tries() != tries || base.open != 0 {
				t.Errorf("%s: it ended after %v and %d tries; %d bodies are open", name, took, base.tries(), base.open)
			}
			if !errors.Is(err, context.Canceled) || !errors.Is(err, reason) || isTimeout(err) || errors.As(err, new(*onceclient.GaveUpError)) != (tries > 0) {
				t.Errorf("%s: got %v", name, err)
			}
		})
	}
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
				_, _, err := do(t, client, post(t, ctx, orders, strings.NewReader("book")))
				if e := gaveUp(t, err); !errors.Is(err, context.DeadlineExceeded) || !isTimeout(err) || e.Key == "" || base.open != 0 {
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
