package reread_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/onceguard/onceguard/internal/reread"
)

// A Body returns what was read in advance and then what follows, however it is read.
func TestBody(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		kept string
		end  error
		want string
		err  error
	}{
		"a part was read":       {"one ", nil, "one two", nil},
		"nothing was read":      {"", nil, "two", nil},
		"all was read":          {"one", io.EOF, "one", nil},
		"it is empty":           {"", io.EOF, "", nil},
		"it broke":              {"one", broken, "one", broken},
		"it broke at the start": {"", broken, "", broken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := new(reread.Body)
			b.Begin([]byte(test.kept), test.end, io.NopCloser(strings.NewReader("two")))
			if got, err := io.ReadAll(iotest.OneByteReader(b)); string(got) != test.want || err != test.err {
				t.Errorf("%q, %v, want %q, %v", got, err, test.want, test.err)
			}
			b.CutOff()
			if n, err := b.Read(make([]byte, 1)); n != 0 || err != http.ErrBodyReadAfterClose {
				t.Errorf("after CutOff: %d, %v", n, err)
			}
		})
	}
}

// fault: the handler reads the body after its Close -> the error of net/http's own body
func TestReadAfterClose(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]error{"all was read": io.EOF, "a part was read": nil} {
		b := new(reread.Body)
		b.Begin([]byte("one"), end, io.NopCloser(strings.NewReader("two")))
		if err := b.Close(); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
		if n, err := b.Read(make([]byte, 1)); n != 0 || err != http.ErrBodyReadAfterClose {
			t.Errorf("%s: %d, %v; want ErrBodyReadAfterClose", name, n, err)
		}
	}
}
