package once_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

func TestPanics(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, redistest.Mini(t).Client(t))
	build := func(l *lock.Locker, opts ...once.Option) func() { return func() { once.New(l, opts...) } }
	intent, none := once.WithJournal(newJournal(true)), lock.None("test")
	for name, fs := range map[string][]func(){
		"once.WithRetention":      {func() { once.WithRetention(time.Microsecond) }},
		"once.WithWait":           {func() { once.WithWait(-1) }, func() { once.WithWait(0, 0) }},
		"once.WithMaxDuration":    {func() { once.WithMaxDuration(0) }},
		"once.WithCompression":    {func() { once.WithCompression(-1) }},
		"once.WithCodec":          {func() { once.WithCodec(json.Marshal, nil) }, func() { once.WithCodec(nil, json.Unmarshal) }},
		"once.WithObserver":       {func() { once.WithObserver(nil) }},
		"once.WithEncryption":     {func() { once.WithEncryption() }, func() { once.WithEncryption(make([]byte, 31)) }},
		"once.New":                {build(nil), build(locker, nil)},
		"once.WithPlaintextReads": {build(locker, once.WithPlaintextReads())},
		"once.WithAtMostOnce": {
			build(locker, once.WithAtMostOnce(), once.WithFailOpen()), build(none, intent, once.WithAtMostOnce()),
			build(locker, once.WithAtMostOnce(), once.WithRetention(11*365*24*time.Hour)),
		},
		"once.WithJournal": {
			func() { once.WithJournal(nil) }, build(none), build(none, once.WithJournal(newJournal(false))),
			build(locker, intent, once.WithFailOpen()), build(locker, once.WithJournal(elsewhere{newJournal(true)})),
		},
	} {
		for _, f := range fs {
			func() {
				defer func() {
					if v := recover(); v == nil || !strings.HasPrefix(fmt.Sprint(v), name+":") {
						t.Errorf("%s: panicked with %v", name, v)
					}
				}()
				f()
			}()
		}
	}
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
	d.event("executed")
	if got := strings.Join(calls, " "); got != "a1executed b1executed" {
		t.Errorf("%s", got)
	}
}

func TestRetention(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		d := open(t, b, once.WithRetention(time.Hour))
		d.want(d.do(d.charge), 1, false, "executed")
		b.Elapse(t, time.Hour)
		d.want(d.do(d.charge), 2, false, "executed")
	})
}

func TestCompression(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		d, plain := open(t, b, once.WithCompression(1000)), open(t, b)
		if e := d.want(d.do(noted(10_000)), 1, false, "executed"); e.Size > 1000 {
			t.Errorf("%d bytes", e.Size)
		}
		plain.want(plain.do(plain.charge), 1, true, "replayed")
	})
}

func TestEncryption(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		key := bytes.Repeat([]byte{7}, 32)
		other := bytes.Repeat([]byte{8}, 32)
		d := open(t, b, once.WithEncryption(key))
		const secret = "the value"
		d.do(func(context.Context) (receipt, error) {
			plain := open(t, b)
			plain.wantRefused(plain.do(plain.charge), once.ErrUnreadable, "unreadable") // the note
			return receipt{Number: 1, Note: secret}, nil
		})
		d.event("executed")
		if raw, _ := b.Raw(t, b.Keys(t)[0]); strings.Contains(raw, secret) {
			t.Errorf("%q has the value in it", raw)
		}
		for name, opts := range map[string][]once.Option{
			"plain":                      nil,
			"another key":                {once.WithEncryption(other)},
			"another key, plaintext too": {once.WithEncryption(other), once.WithPlaintextReads()},
		} {
			d := open(t, b, opts...)
			a := d.do(d.charge)
			if d.wantRefused(a, once.ErrUnreadable, "unreadable"); strings.Contains(a.err.Error(), secret) {
				t.Errorf("%s: %v", name, a.err)
			}
		}
		d = open(t, b, once.WithEncryption(other, key))
		d.want(d.do(d.charge), 1, true, "replayed")
		d.wantRefused(d.do(d.charge, input("other")), once.ErrReused, "reused")
	})
}
