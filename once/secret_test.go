package once_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/once"
)

const secret = "4111111111111111"

// quoting and unquoting are a codec whose errors quote the value, as those of encoding/json and of protobuf may.
func quoting(v any) ([]byte, error) {
	if s, ok := v.(card); ok {
		return nil, fmt.Errorf("cannot encode %v", string(s))
	}
	return json.Marshal(v)
}

func unquoting(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("cannot decode %s: %w", b, once.NothingHappened(err))
	}
	return nil
}

// card has no JSON, and its error quotes it.
type card string

func (c card) MarshalJSON() ([]byte, error) { return nil, errors.New("card " + string(c)) }

// What a codec says of a value may quote it. Neither an error nor an Event has more of it than the types.
//
// fault: two services use one key for values of two types, with WithEncryption. Expected: no error has the decrypted value
func TestValuesStayOutOfErrors(t *testing.T) {
	t.Parallel()
	for name, codec := range map[string]once.Option{
		"JSON": once.WithCompression(1 << 20), "another codec": once.WithCodec(quoting, unquoting),
	} {
		b := redistest.Mini(t)
		d := open(t, b, once.WithEncryption(bytes.Repeat([]byte{1}, 32)), codec)
		check := func(what string, err error, outcome once.Outcome, named string) {
			t.Helper()
			e := <-d.events
			text := fmt.Sprintf("%v %+v %v", err, e, e.Err)
			if e.Outcome != outcome || strings.Contains(text, secret) || !strings.Contains(text, named) {
				t.Errorf("%s: %s: %s, want %s, the type %s and no value", name, what, text, outcome, named)
			}
		}
		_, _, err := as(d, "1", int64(4111111111111111))
		check("a value", err, "executed", "")
		_, _, err = as(d, "1", int8(0))
		if check("another type", err, "unreadable", "int8"); !errors.Is(err, once.ErrUnreadable) {
			t.Errorf("%s: %v, want ErrUnreadable", name, err)
		}
		_, _, err = as(d, "2", any(card(secret)))
		check("a value without JSON", err, "not-stored", "once_test.card")
		check("an Input without JSON", d.do(d.charge, id("3"), input(card(secret))).err, "invalid-key", "once_test.card")
		err = d.guard.Resolve(t.Context(), b.Keys(t)[0], "", card(secret), nil)
		if !errors.Is(err, once.ErrResolution) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: Resolve: %v", name, err)
		}
	}
}

// as calls a function that returns v, of its type, for a message of ann.
func as[T any](d *desk, id string, v T) (T, bool, error) {
	key := once.Key{Operation: "charge", Scope: "ann", ID: id}
	return once.Do(d.t.Context(), d.guard, key, func(context.Context) (T, error) {
		d.runs.Add(1)
		return v, nil
	})
}

// fault: a codec panics: while the value is encoded, while it is decoded, and the Input of a Key. Expected: the panic goes on, the
// observer is called once, and nothing runs; after the function the outcome is unknown
func TestPanicOfACodec(t *testing.T) {
	t.Parallel()
	boom := func(any) ([]byte, error) { panic("boom") }
	for name, c := range map[string]struct {
		codec once.Option
		input any
		want  []once.Outcome // of the Events of two calls
		runs  int64
	}{
		"value":          {once.WithCodec(boom, json.Unmarshal), nil, []once.Outcome{"panicked", "in-flight"}, 1},
		"a stored value": {once.WithCodec(json.Marshal, func([]byte, any) error { panic("boom") }), nil, []once.Outcome{"executed", "unreadable"}, 1},
		"Input":          {once.WithAtMostOnce(), panicking{}, []once.Outcome{"invalid-key", "invalid-key"}, 0},
	} {
		d := open(t, redistest.Mini(t), c.codec)
		for _, want := range c.want {
			func() {
				defer func() {
					v := recover()
					if e := <-d.events; e.Outcome != want || (v == "boom") != (want != "executed" && want != "in-flight") ||
						v != nil && (e.Err == nil || !strings.Contains(e.Err.Error(), "panicked")) {
						t.Errorf("%s: %v, and the Event %+v; want %s", name, v, e, want)
					}
				}()
				d.do(d.charge, input(c.input))
			}()
		}
		if d.wantRuns(c.runs); len(d.events) != 0 {
			t.Errorf("%s: one more event: %+v", name, <-d.events)
		}
	}
}

// panicking is an Input whose JSON panics.
type panicking struct{}

func (panicking) MarshalJSON() ([]byte, error) { panic("boom") }
