package once_test

import (
	"errors"
	"testing"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

// Whatever is stored, decoding it gives a value, a stored error, or ErrUnreadable.
func FuzzDecode(f *testing.F) {
	g := once.New(lock.None("test"), once.WithJournal(newJournal(true)))
	for _, err := range []error{nil, errDeclined} {
		payload, failed := g.Encode(receipt{Number: 1, Note: "a"}, err)
		if failed != nil {
			f.Fatal(failed)
		}
		f.Add(payload)
	}
	for _, payload := range []string{"", "\x00", "\x00{", "\x00null", "\x00[]", "\x00{\"Number\":1e9}", "\x01", "\x02{}", "\xff"} {
		f.Add([]byte(payload))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		var v receipt
		err := g.Decode(payload, &v)
		var stored *once.StoredError
		switch {
		case err == nil:
			again, failed := g.Encode(v, nil)
			var w receipt
			if failed != nil || g.Decode(again, &w) != nil || v != w {
				t.Errorf("%q is %+v, and then %q, %+v (%v)", payload, v, again, w, failed)
			}
		case errors.As(err, &stored):
			if again, failed := g.Encode(nil, err); failed != nil || string(again) != string(payload[:min(len(payload), 1+1<<20)]) {
				t.Errorf("%q is %q, and then %q (%v)", payload, err, again, failed)
			}
		case !errors.Is(err, once.ErrUnreadable):
			t.Errorf("%q: %v", payload, err)
		}
	})
}

// Different keys have different encodings.
func FuzzKey(f *testing.F) {
	f.Add("a", "b:c", "d", "a:b", "c", "d")
	f.Add("1:a", "", "", "1", "a", "")
	f.Fuzz(func(t *testing.T, o1, s1, i1, o2, s2, i2 string) {
		k1, k2 := once.Key{Operation: o1, Scope: s1, ID: i1}, once.Key{Operation: o2, Scope: s2, ID: i2}
		if (k1 == k2) != (once.EncodeKey(k1) == once.EncodeKey(k2)) {
			t.Errorf("%q and %q are encoded as %q and %q", k1, k2, once.EncodeKey(k1), once.EncodeKey(k2))
		}
	})
}

func TestEncodedKey(t *testing.T) {
	t.Parallel()
	if got := once.EncodeKey(once.Key{Operation: "charge", Scope: "ann", ID: "1"}); got != encodedKey {
		t.Errorf("%q, want %q: results that are stored would be forgotten", got, encodedKey)
	}
}
