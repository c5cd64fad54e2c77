package sqljournal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/onceguard/onceguard/sqljournal"
)

// lookers look, in a synctest bubble, at a database that answers when a test says so.
type lookers struct {
	batcher sqljournal.Batcher
	release chan error // one value lets one statement end

	mu   sync.Mutex
	sent [][]string // keys of each statement
	many []bool     // whether it was one for several keys
	ends map[string]error
	all  sync.WaitGroup
}

func newLookers() *lookers { return &lookers{release: make(chan error), ends: map[string]error{}} }

// statement notes a statement that is sent and waits for its end.
func (l *lookers) statement(ctx context.Context, many bool, keys ...string) error {
	l.mu.Lock()
	l.sent, l.many = append(l.sent, slices.Clone(keys)), append(l.many, many)
	l.mu.Unlock()
	select {
	case err := <-l.release:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errNotFound = errors.New("a row is not handed out")

// look starts a look, and returns when it waits.
func (l *lookers) look(ctx context.Context, key string) {
	l.all.Go(func() {
		found, err := l.batcher.Look(ctx, key,
			func(ctx context.Context, key string) error { return l.statement(ctx, false, key) },
			func(ctx context.Context, keys []string) ([]string, error) {
				return keys, l.statement(ctx, true, keys...)
			})
		if err == nil && !found {
			err = errNotFound
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ends[key] = err
	})
	synctest.Wait()
}

// fill sends as many statements as may be under way.
func (l *lookers) fill(ctx context.Context) {
	for i := range sqljournal.MaxSenders {
		l.look(ctx, fmt.Sprint("first ", i))
	}
}

// end lets one statement end.
func (l *lookers) end(err error) {
	l.release <- err
	synctest.Wait()
}

// finish lets all statements end, and checks that nothing is left.
func (l *lookers) finish(t *testing.T) {
	t.Helper()
	over := make(chan struct{})
	go func() { l.all.Wait(); close(over) }()
	for done := false; !done; {
		select {
		case l.release <- nil:
		case <-over:
			done = true
		}
	}
	if !l.batcher.Idle() {
		t.Error("a look is still sent or waits")
	}
}

// mustSend checks the keys of the statements since the first ones.
func (l *lookers) mustSend(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var got []string
	for i, keys := range l.sent[min(sqljournal.MaxSenders, len(l.sent)):] {
		got = append(got, strings.Join(keys, "+"))
		if many := l.many[i+sqljournal.MaxSenders]; many != (len(keys) > 1) {
			t.Errorf("%q are sent by the statement for many: %t", keys, many)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got the statements %q, want %q", got, want)
	}
}

func (l *lookers) mustEnd(t *testing.T, key string, want error) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err, ended := l.ends[key]; !ended || !errors.Is(err, want) {
		t.Errorf("%s: ended %t, with error %v, want %v", key, ended, err, want)
	}
}

func inBubble(t *testing.T, test func(t *testing.T, l *lookers)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newLookers()) })
}
