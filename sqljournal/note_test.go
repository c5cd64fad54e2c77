package sqljournal_test

import (
	"slices"
	"testing"

	"github.com/onceguard/onceguard/sqljournal"
)

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
