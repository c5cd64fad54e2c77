package store_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/lock/internal/store"
)

// The tag is the first 14 bits of the hash.
func TestKey(t *testing.T) {
	t.Parallel()
	const hash = "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683" // SHA-256 of "key"
	if got, want := store.Namespace("ns").Key("key").Text, "ns:{0b1c}"+hash; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for text, ok := range map[string]bool{
		"ns:{0b1c}" + hash:                   true,
		hash:                                 true,
		strings.ToUpper(hash):                true,
		"urn:onceguard:key:" + hash:          true,
		"URN:OnceGuard:key:" + hash:          true,
		"urn:onceguard:kex:" + hash:          false,
		"urn:onceguard:key:":                 false,
		"urn:onceguard:key:" + hash[:62]:     false,
		hash + "00":                          false,
		hash[:63] + "g":                      false,
		"":                                   false,
		"ns:{0b1c}" + strings.ToUpper(hash):  false,
		"ns:{0b1d}" + hash:                   false,
		"other:{0b1c}" + hash:                false,
		"ns:{0b1c}":                          false,
		"ns:{0b1c}fence":                     false,
		"ns:{0b1c}urn:onceguard:key:" + hash: false,
		"fence":                              false,
		"{" + hash:                           false,
		"}" + hash:                           false,
	} {
		key, err := store.Namespace("ns").ParseKey(text)
		if ok && (err != nil || key != store.Namespace("ns").Key("key")) || !ok && (!errors.Is(err, store.ErrNotStorageKey) || key != store.Key{}) {
			t.Errorf("%s: %+v, %v", text, key, err)
		}
		if isFence := text == "ns:{0b1c}fence"; !ok && strings.Contains(err.Error(), "fence counter") != isFence {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A name that Inspect returns names a claim or a value.
func TestParseName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{ours.String(): head(ourClaim), store.ValueName(ours.String()): head(value(ours, ""))} {
		if got, err := store.ParseName(name); string(got) != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"", "value-", "token"} {
		if got, err := store.ParseName(name); got != nil {
			t.Errorf("%s: %q", name, got)
		} else {
			wantErr(t, err, store.ErrChanged)
		}
	}
}

// A token is a random UUID of version 4.
func TestNewToken(t *testing.T) {
	t.Parallel()
	seen := map[uuid.UUID]bool{}
	for range 1000 {
		token := store.NewToken()
		if seen[token] || token.Version() != 4 || token.Variant() != uuid.RFC4122 {
			t.Fatalf("%v", token)
		}
		seen[token] = true
	}
}

// The longest hold is read, and a longer one is foreign. A value begins with what NewValue has returned.
func TestFormat(t *testing.T) {
	t.Parallel()
	for hold, ok := range map[time.Duration]bool{store.MaxHold: true, store.MaxHold + time.Millisecond: false} {
		run(t, []string{pair(claim(theirs, "\x00", hold, ""), hold)}, func(w *world) {
			e, err := w.Look(w.Context(), w.key, false)
			if got := e.State == store.Abandoned; got != ok || (err == nil) != ok {
				t.Errorf("%v: %s, %v", hold, describe(e), err)
			}
		})
	}
	v := store.NewValue(ours, claimed, 5)
	if cap(v) != len(v)+5 {
		t.Errorf("capacity %d for %d bytes", cap(v), len(v)+5)
	}
	if got, want := describe(store.ParseValue(append(v, "value"...))), describe(settledEntry); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !bytes.HasPrefix(v, append([]byte("OGv\x01"), ours[:]...)) {
		t.Errorf("%q", v)
	}
}
