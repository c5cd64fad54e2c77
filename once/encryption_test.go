package once_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/once"
)

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
