package middleware_test

import (
	"bytes"
	"testing"

	"github.com/onceguard/onceguard/middleware"
)

// FuzzRecord feeds the decoder with whatever may be under a key. What it takes, it must read whole: written again it is
// the same bytes.
func FuzzRecord(f *testing.F) {
	const key = "test:{2e9e}ba78"
	f.Add(middleware.EncodeRecord(key, []byte("body")))
	f.Add(middleware.EncodeRecord(key, nil))
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, ok := middleware.DecodeRecord("another key", middleware.EncodeRecord(key, b)); ok {
			t.Error("read under another key")
		}
		if again, ok := middleware.DecodeRecord(key, middleware.EncodeRecord(key, b)); !ok || !bytes.Equal(again, middleware.EncodeRecord(key, b)) {
			t.Error("what was encoded does not read as it was")
		}
		b = bytes.Clone(b)
		middleware.SealRecord(key, b)
		if again, ok := middleware.DecodeRecord(key, b); ok && !bytes.Equal(again, b) {
			t.Errorf("%x was read as %x", b, again)
		}
	})
}
