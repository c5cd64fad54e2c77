package canonical_test

import (
	"crypto/sha256"
	"strconv"
	"testing"

	"github.com/onceguard/onceguard/internal/canonical"
)

func TestAppendPart(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "a", "käse", "\x00\xff", string(make([]byte, 70000))} {
		want := "x" + strconv.Itoa(len(s)) + ":" + s
		if got := string(canonical.AppendPart([]byte("x"), s)); got != want {
			t.Errorf("AppendPart(%.20q) = %.30q, want %.30q", s, got, want)
		}
		if got := string(canonical.AppendPart([]byte("x"), []byte(s))); got != want {
			t.Errorf("AppendPart(%.20q) of bytes = %.30q, want %.30q", s, got, want)
		}
	}
}

func sum(contentType string, body []byte) [sha256.Size]byte {
	return canonical.SumBody(nil, contentType, body)
}
