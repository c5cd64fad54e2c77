package once_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/once"
)

// wantPanic checks that f panics with a text that begins with this name.
func wantPanic(t *testing.T, name string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if v := recover(); v == nil || !strings.HasPrefix(fmt.Sprint(v), name+":") {
			t.Errorf("%s: panicked with %v", name, v)
		}
	}()
	f()
}

func TestPanics(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, redistest.Mini(t).Client(t))
	for name, f := range map[string]func(){
		"once.WithRetention":   func() { once.WithRetention(time.Microsecond) },
		"once.WithWait":        func() { once.WithWait(-1) },
		"once.WithMaxWaiters":  func() { once.WithMaxWaiters(0) },
		"once.WithMaxDuration": func() { once.WithMaxDuration(0) },
		"once.WithCompression": func() { once.WithCompression(-1) },
		"once.WithCodec":       func() { once.WithCodec(json.Marshal, nil) },
		"once.WithObserver":    func() { once.WithObserver(nil) },
	} {
		wantPanic(t, name, f)
	}
	wantPanic(t, "once.WithJournal", func() { once.WithJournal(nil) })
	wantPanic(t, "once.WithEncryption", func() { once.WithEncryption() })
	wantPanic(t, "once.WithEncryption", func() { once.WithEncryption(make([]byte, 31)) })
	wantPanic(t, "once.New", func() { once.New(nil) })
	wantPanic(t, "once.New", func() { once.New(locker, nil) })
	wantPanic(t, "once.WithPlaintextReads", func() { once.New(locker, once.WithPlaintextReads()) })
	wantPanic(t, "once.WithAtMostOnce", func() { once.New(locker, once.WithAtMostOnce(), once.WithFailOpen()) })
	wantPanic(t, "once.WithJournal", func() { once.New(locker, once.WithJournal(newJournal(true)), once.WithFailOpen()) })
	wantPanic(t, "once.WithJournal", func() { once.New(locker, once.WithJournal(elsewhere{newJournal(true)})) })
	wantPanic(t, "once.WithAtMostOnce", func() {
		once.New(locker, once.WithAtMostOnce(), once.WithRetention(11*365*24*time.Hour))
	})
}

func TestObserversAreCalledInOrder(t *testing.T) {
	t.Parallel()
	type key struct{}
	var calls []string
	observe := func(name string) once.Option {
		return once.WithObserver(func(ctx context.Context, e once.Event) {
			calls = append(calls, fmt.Sprint(name, ctx.Value(key{}), e.Outcome))
		})
	}
	d := open(t, redistest.Mini(t), observe("a"), observe("b"))
	d.doIn(context.WithValue(t.Context(), key{}, 1), d.charge)
	if got := strings.Join(calls, " "); got != "a1executed b1executed" {
		t.Errorf("%s", got)
	}
	d.event("executed")
}

func TestRetention(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		d := open(t, b, once.WithRetention(time.Hour))
		d.want(d.do(d.charge), 1, false, "executed")
		b.Elapse(t, 30*time.Minute)
		d.want(d.do(d.charge), 1, true, "replayed")
		b.Elapse(t, 30*time.Minute)
		d.want(d.do(d.charge), 2, false, "executed")
	})
}
