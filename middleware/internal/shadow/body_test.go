package shadow_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/onceguard/onceguard/middleware/internal/shadow"
)

// The handler gets the whole body, whatever was read of it in advance, and then what followed.
//
// fault: the handler reads its body in several goroutines, or leaves one behind, in shadow.
func TestBody(t *testing.T) {
	errBroken := errors.New("broken")
	for name, test := range map[string]struct {
		body     io.Reader
		length   int64
		major    int
		read     int // bytes that are read in advance; -1: all
		readErr  error
		original bool // the handler gets the original body
		rest     string
		err      error
	}{
		"not read":              {body: strings.NewReader("abc"), length: 3, major: 1, original: true, rest: "abc"},
		"in part":               {body: strings.NewReader("abc"), length: 3, major: 1, read: 2, rest: "abc"},
		"whole":                 {body: strings.NewReader("abc"), length: 3, major: 1, read: -1, rest: "abc"},
		"empty":                 {body: strings.NewReader(""), length: 0, major: 1, read: -1, original: true},
		"in chunks":             {body: strings.NewReader("abc"), length: -1, major: 1, read: -1, rest: "abc"},
		"HTTP/2":                {body: strings.NewReader("abc"), length: 3, major: 2, read: -1, rest: "abc"},
		"a stream of HTTP/2":    {body: strings.NewReader("abc"), length: -1, major: 2, read: -1, readErr: shadow.ErrStream, original: true, rest: "abc"},
		"broken":                {body: io.MultiReader(strings.NewReader("a"), iotest.ErrReader(errBroken)), length: 3, major: 1, read: -1, readErr: errBroken, rest: "a", err: errBroken},
		"broken from the first": {body: iotest.ErrReader(errBroken), length: 3, major: 1, read: -1, readErr: errBroken, err: errBroken},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", io.NopCloser(test.body))
			r.ContentLength, r.ProtoMajor = test.length, test.major
			original := r.Body
			var body shadow.Body
			body.Open(r)
			var err error
			if test.read < 0 {
				_, err = io.ReadAll(&body)
			} else {
				_, err = io.ReadFull(&body, make([]byte, test.read))
			}
			if !errors.Is(err, test.readErr) || body.Close() != nil {
				t.Errorf("in advance: %v, want %v", err, test.readErr)
			}
			if test.readErr != nil {
				if _, again := body.Read(make([]byte, 1)); !errors.Is(again, test.readErr) {
					t.Errorf("read again: %v", again)
				}
			}
			handlers := body.HandOver()
			if got := handlers == original; got != test.original {
				t.Errorf("the original body: %t, want %t", got, test.original)
			}
			if rest, err := io.ReadAll(handlers); string(rest) != test.rest || !errors.Is(err, test.err) {
				t.Errorf("the handler got %q, %v; want %q, %v", rest, err, test.rest, test.err)
			}
			if body.CutOff() != original {
				t.Error("net/http does not get its own body back")
			}
			if _, err := handlers.Read(make([]byte, 1)); !test.original && !errors.Is(err, http.ErrBodyReadAfterClose) {
				t.Errorf("a goroutine left behind gets %v", err)
			}
		})
	}
	var body shadow.Body
	if body.Open(&http.Request{}); body.HandOver() != http.NoBody {
		t.Error("without a body the handler gets another one")
	}
}
