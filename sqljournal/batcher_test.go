package sqljournal_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

func TestLooksAreSentTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lookers) {
		l.fill(t.Context())
		for _, key := range []string{"a", "b", "c", "c"} {
			l.look(t.Context(), key)
		}
		l.mustSend(t)
		l.end(nil)
		l.mustSend(t, "a+b+c+c")
		l.look(t.Context(), "d")
		l.end(nil)
		l.mustSend(t, "a+b+c+c", "d") // a statement has ended: that of the first ones, or that for many
		l.finish(t)
		for _, key := range []string{"a", "b", "c", "d", "first 0"} {
			l.mustEnd(t, key, nil)
		}
	})
}

func TestLooksAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lookers) {
		l.fill(t.Context())
		for i := range sqljournal.MaxBatch + 2 {
			l.look(t.Context(), fmt.Sprint(i))
		}
		l.end(nil)
		if got := len(l.sent[sqljournal.MaxSenders]); got != sqljournal.MaxBatch {
			t.Errorf("%d are sent together, want %d", got, sqljournal.MaxBatch)
		}
		l.end(nil)
		l.end(nil)
		l.finish(t)
		if len(l.ends) != sqljournal.MaxSenders+sqljournal.MaxBatch+2 {
			t.Errorf("%d looks have ended", len(l.ends))
		}
	})
}

// The error of a batch is its sender's. The others in it look alone.
func TestLooksWhoseBatchFails(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lookers) {
		ctx, cancel := context.WithCancel(t.Context())
		l.fill(t.Context())
		l.look(ctx, "sender")
		l.look(t.Context(), "other")
		l.end(nil)
		l.mustSend(t, "sender+other")
		cancel()
		synctest.Wait()
		l.mustEnd(t, "sender", context.Canceled)
		l.mustSend(t, "sender+other", "other")
		l.finish(t)
		l.mustEnd(t, "other", nil)
	})
}

func TestLooksThatLeave(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lookers) {
		ctx, cancel := context.WithCancel(t.Context())
		l.fill(t.Context())
		for _, key := range []string{"leaves", "stays", "leaves too"} {
			of := t.Context()
			if strings.HasPrefix(key, "leaves") {
				of = ctx
			}
			l.look(of, key)
		}
		cancel()
		synctest.Wait()
		l.mustEnd(t, "leaves", context.Canceled)
		l.mustEnd(t, "leaves too", context.Canceled)
		l.end(nil)
		l.mustSend(t, "stays")
		l.finish(t)
	})
}

// A look becomes a sender at the moment when its caller leaves. Either it sends, or the next one does.
func TestLooksThatLeaveWhenTheyAreToSend(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lookers) {
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			l.fill(t.Context())
			l.look(ctx, "leaves")
			l.look(t.Context(), "stays")
			cancel()
			l.release <- nil
			l.finish(t)
			l.mustEnd(t, "stays", nil)
		}
	})
}

// A look does not wait for a silent connection of others.
func TestLooksBehindASilentConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lookers) {
		l.fill(t.Context())
		l.look(t.Context(), "a")
		l.look(t.Context(), "b")
		time.Sleep(sqljournal.MaxWait)
		synctest.Wait()
		l.mu.Lock()
		slices.SortFunc(l.sent[sqljournal.MaxSenders:], slices.Compare)
		l.mu.Unlock()
		l.mustSend(t, "a", "b")
		l.finish(t)
	})
}

// Many look and leave at any time; nobody waits for ever, and nothing is left.
func TestLooksAtRandom(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var batcher sqljournal.Batcher
	var all sync.WaitGroup
	for i := range 32 {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			for n := range 500 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(200))*time.Microsecond)
				answer := func() error {
					runtime.Gosched() // others come
					if n%16 == 0 {
						return errors.New("at random")
					}
					return ctx.Err()
				}
				key := fmt.Sprint(n % 8)
				found, err := batcher.Look(ctx, key,
					func(context.Context, string) error { return answer() },
					func(_ context.Context, keys []string) ([]string, error) { return keys, answer() })
				if err == nil && !found {
					t.Errorf("%s: %v", key, errNotFound)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if !batcher.Idle() {
		t.Error("a look is still sent or waits")
	}
}

// Keys that mean something in an array literal, and some that do not exist, are each looked at as they are.
func TestLookMany(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
		d := dbtest.PostgreSQL(t)
		j, db := sqljournal.Transactional(d.Open(t, dbtest.Param("default_query_exec_mode", mode)), namespace), d.Open(t)
		keys := []string{"plain", `with "quotes"`, `back\slash`, "a,b", "{braces}", "NULL", "", "ü", `\"`, "two\nlines", "'", "$1"}
		for _, key := range keys {
			run := newRun(time.Hour)
			run.Key = key
			othersDone.put(t, d, db, run)
		}
		got, err := j.LookMany(t.Context(), append([]string{"absent", `"`, "{"}, keys...))
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		slices.Sort(keys)
		if !slices.Equal(got, keys) {
			t.Errorf("got %q, want %q", got, keys)
		}
	}
}

func FuzzSplitNote(f *testing.F) {
	for _, note := range [][]byte{nil, {0}, {1}, {1, 'a'}, {1, 'a', 'b'}, {0x80}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}} {
		f.Add(note)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		middlewares, handlers, err := sqljournal.SplitNote(b)
		if err != nil {
			return
		}
		m, h, err := sqljournal.SplitNote(sqljournal.JoinNote(middlewares, handlers))
		if err != nil || !slices.Equal(m, middlewares) || !slices.Equal(h, handlers) {
			t.Errorf("%q: got %q and %q, %v, want %q and %q", b, m, h, err, middlewares, handlers)
		}
	})
}
