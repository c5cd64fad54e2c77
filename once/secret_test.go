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
	key := bytes.Repeat([]byte{1}, 32)
	number := once.Key{Operation: "charge", Scope: "ann", ID: "1"}
	for name, codec := range map[string]once.Option{
		"JSON": once.WithCompression(1 << 20), "another codec": once.WithCodec(quoting, unquoting),
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				d := open(t, b, once.WithEncryption(key), codec)
				check := func(what string, returned error, e once.Event, outcome once.Outcome, types ...string) {
					t.Helper()
					text := fmt.Sprintf("%v %+v %v", returned, e, e.Err)
					if e.Outcome != outcome || e.Err == nil || strings.Contains(text, secret) {
						t.Errorf("%s: %s, want %s, an error, and no value", what, text, outcome)
					}
					for _, of := range types {
						if !strings.Contains(e.Err.Error(), of) {
							t.Errorf("%s: %v does not name %s", what, e.Err, of)
						}
					}
				}
				_, _, err := once.Do(t.Context(), d.guard, number, func(context.Context) (int64, error) { return 4111111111111111, nil })
				if e := <-d.events; err != nil || e.Outcome != "executed" {
					t.Fatal(err, e)
				}
				_, _, err = once.Do(t.Context(), d.guard, number, func(context.Context) (int8, error) { return 0, nil })
				if !errors.Is(err, once.ErrUnreadable) {
					t.Errorf("%v, want ErrUnreadable", err)
				}
				check("another type", err, <-d.events, "unreadable", "int8")

				d.doOther(t, "2", card(secret))
				check("a value without JSON", nil, <-d.events, "not-stored", "once_test.card")

				a := d.do(d.charge, id("3"), input(card(secret)))
				check("an Input without JSON", a.err, <-d.events, "invalid-key", "once_test.card")

				err = d.guard.Resolve(t.Context(), b.Keys(t)[0], "", card(secret), nil)
				if !errors.Is(err, once.ErrResolution) || strings.Contains(err.Error(), secret) {
					t.Errorf("Resolve: %v", err)
				}
			})
		})
	}
}

// doOther calls a function that returns v.
func (d *desk) doOther(t *testing.T, id string, v any) {
	t.Helper()
	key := once.Key{Operation: "charge", Scope: "ann", ID: id}
	if _, _, err := once.Do(t.Context(), d.guard, key, func(context.Context) (any, error) { return v, nil }); err != nil {
		t.Error(err)
	}
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
