package background_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/onceguard/onceguard/internal/background"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCloseOfAnIdleGroup(t *testing.T) {
	t.Parallel()
	g := background.NewGroup(context.Background())
	if g.Closed() || g.Context().Err() != nil {
		t.Fatal("a new Group is closed")
	}
	for range 2 {
		if err := g.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if !g.Closed() || g.Context().Err() == nil {
			t.Error("the Group is not closed")
		}
	}
}

func TestCloseWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := background.NewGroup(context.Background())
		begin := time.Now()
		var finished atomic.Int32
		for n := range 3 {
			g.Go(func() {
				<-g.Context().Done()
				time.Sleep(time.Duration(n) * time.Second)
				finished.Add(1)
			})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if finished.Load() != 0 {
			t.Error("Context has ended before Close")
		}
		if err := g.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if got := finished.Load(); got != 3 {
			t.Errorf("Close has returned with %d of 3 goroutines finished", got)
		}
		if took := time.Since(begin) - time.Minute; took != 2*time.Second {
			t.Errorf("Close took %v, want 2s", took)
		}
	})
}

func TestCloseReturnsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := background.NewGroup(context.Background())
		stop := make(chan struct{})
		g.Go(func() { <-stop })
		cause := errors.New("shutdown took too long")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		begin := time.Now()
		if err := g.Close(ctx); !errors.Is(err, cause) {
			t.Errorf("Close: %v, want the cause of its context", err)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("Close took %v, want 1s", took)
		}
		close(stop)
		if err := g.Close(t.Context()); err != nil { // waits for what the first Close left
			t.Errorf("the second Close: %v", err)
		}
	})
}

// Work that begins while Close waits is waited for, too.
func TestBeginDuringClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := background.NewGroup(context.Background())
		var finished atomic.Bool
		g.Go(func() {
			<-g.Context().Done()
			time.Sleep(time.Second)
			g.Go(func() {
				time.Sleep(time.Second)
				finished.Store(true)
			})
		})
		begin := time.Now()
		if err := g.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(begin); took != 2*time.Second || !finished.Load() {
			t.Errorf("Close has returned after %v; finished: %t", took, finished.Load())
		}
	})
}

func TestManyCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := background.NewGroup(context.Background())
		g.Begin()
		results := make(chan error)
		for range 3 {
			go func() { results <- g.Close(t.Context()) }()
		}
		synctest.Wait()
		select {
		case err := <-results:
			t.Fatalf("Close has returned %v while work is under way", err)
		default:
		}
		g.Done()
		for range 3 {
			if err := <-results; err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		g.Begin() // begins after Close, and nobody waits
		g.Done()
	})
}

// A goroutine that ends by runtime.Goexit is done as well.
func TestGoexit(t *testing.T) {
	t.Parallel()
	g := background.NewGroup(context.Background())
	g.Go(runtime.Goexit)
	if err := g.Close(context.Background()); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	cause := errors.New("stop")
	for name, test := range map[string]struct {
		pause, stopAfter time.Duration
		took             time.Duration
		err              error
	}{
		"whole":            {pause: time.Second, stopAfter: time.Hour, took: time.Second},
		"cut":              {pause: time.Hour, stopAfter: time.Second, took: time.Second, err: cause},
		"none":             {pause: 0, stopAfter: time.Hour},
		"a negative pause": {pause: -time.Second, stopAfter: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), test.stopAfter, cause)
				defer cancel()
				begin := time.Now()
				if err := background.Pause(ctx, test.pause); !errors.Is(err, test.err) {
					t.Errorf("got %v, want %v", err, test.err)
				}
				if took := time.Since(begin); took != test.took {
					t.Errorf("took %v, want %v", took, test.took)
				}
			})
		})
	}
}

func TestWithoutEnd(t *testing.T) {
	t.Parallel()
	type key struct{}
	valued := context.WithValue(context.Background(), key{}, "value")
	cancelled, cancel := context.WithCancel(valued)
	cancel()
	limited, cancel := context.WithTimeout(valued, time.Hour)
	defer cancel()
	for name, ctx := range map[string]context.Context{"endless": valued, "cancelled": cancelled, "limited": limited} {
		got := background.WithoutEnd(ctx)
		if _, ok := got.Deadline(); ok || got.Done() != nil || got.Err() != nil {
			t.Errorf("%s: the context has an end", name)
		}
		if got.Value(key{}) != "value" {
			t.Errorf("%s: the value is lost", name)
		}
	}
	if background.WithoutEnd(valued) != valued {
		t.Error("a context without an end is wrapped")
	}
}

func TestJitter(t *testing.T) {
	t.Parallel()
	for range 1000 {
		if d := background.Jitter(3); d < 0 || d >= 3 {
			t.Fatalf("Jitter(3) = %d", d)
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for range 200 {
		var b background.Backoff
		for n, bound := range []time.Duration{20, 40, 80, 160, 320, 640, 1000, 1000, 1000} {
			bound *= time.Millisecond
			d := b.Next()
			seen[d] = true
			if d < bound/2 || d >= bound {
				t.Fatalf("pause %d is %v, want from %v to %v", n+1, d, bound/2, bound)
			}
		}
	}
	if len(seen) < 100 {
		t.Errorf("only %d different pauses", len(seen))
	}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit     time.Duration
		doneAfter int // tries
		stopAfter time.Duration
		tries     [2]int // from, to
		most      time.Duration
	}{
		"the first try":     {limit: time.Hour, doneAfter: 1, stopAfter: 2 * time.Hour, tries: [2]int{1, 1}, most: 20 * time.Millisecond},
		"the fourth try":    {limit: time.Hour, doneAfter: 4, stopAfter: 2 * time.Hour, tries: [2]int{4, 4}, most: 300 * time.Millisecond},
		"no time":           {limit: 0, doneAfter: 1, stopAfter: time.Hour, most: 20 * time.Millisecond},
		"time is over":      {limit: time.Minute, doneAfter: 1e9, stopAfter: time.Hour, tries: [2]int{60, 130}, most: time.Minute + time.Second},
		"the context ends":  {limit: time.Hour, doneAfter: 1e9, stopAfter: time.Minute, tries: [2]int{60, 130}, most: time.Minute},
		"the context ended": {limit: time.Hour, doneAfter: 1e9, stopAfter: 0, tries: [2]int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.stopAfter)
				defer cancel()
				synctest.Wait()
				begin, tries := time.Now(), 0
				background.NewTurns(1, time.Second).Retry(ctx, begin.Add(test.limit), func() (done, answered bool) {
					tries++
					return tries == test.doneAfter, false
				})
				if tries < test.tries[0] || tries > test.tries[1] {
					t.Errorf("%d tries, want %v", tries, test.tries)
				}
				if took := time.Since(begin); took > test.most {
					t.Errorf("took %v, want at most %v", took, test.most)
				}
			})
		})
	}
}

// A try that fails keeps its turn for the pause. Once the context is done, nobody waits for a turn for longer than the
// patience, and each tries once more.
func TestTurns(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answered bool
		tries    [2]int // of all, in a minute
	}{
		"no answer":   {false, [2]int{120, 260}},
		"it answered": {true, [2]int{600, 1300}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const callers, most = 10, 2
				turns := background.NewTurns(most, time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var trying, tries, last atomic.Int32
				for range callers {
					go turns.Retry(ctx, time.Now().Add(time.Hour), func() (done, answered bool) {
						if n := trying.Add(1); n > most && ctx.Err() == nil {
							t.Errorf("%d try at the same time", n)
						}
						defer trying.Add(-1)
						if ctx.Err() != nil {
							last.Add(1)
						} else {
							tries.Add(1)
						}
						return false, test.answered
					})
				}
				<-ctx.Done()
				synctest.Wait()
				if n := int(tries.Load()); n < test.tries[0] || n > test.tries[1] {
					t.Errorf("%d tries, want %v", n, test.tries)
				}
				time.Sleep(2 * time.Second)
				if last.Load() != callers {
					t.Errorf("%d have tried one last time, want %d", last.Load(), callers)
				}
			})
		})
	}
}

func TestRoom(t *testing.T) {
	t.Parallel()
	room := background.NewRoom(3)
	two := room.Take(2)
	if two == nil || room.Take(2) != nil {
		t.Fatal("a Room for three has none for two, or for four")
	}
	one := room.Take(1)
	two()
	if one == nil || room.Take(3) != nil || room.Take(2) == nil {
		t.Error("what was given back is not free, or more than that")
	}
}
