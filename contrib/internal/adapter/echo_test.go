package adapter_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/onceguard/onceguard/contrib/internal/adapter"
)

// echoContext is a context of echo.
type echoContext struct{ r *http.Request }

func (c *echoContext) Request() *http.Request     { return c.r }
func (c *echoContext) SetRequest(r *http.Request) { c.r = r }

// fault: the deadline of echo's ContextTimeout outside passes, and the handler returns its error -> the response is left to
// ContextTimeout, and the outcome is unknown. Any other error, and that of another deadline, is the HTTPErrorHandler's.
func TestEchoDeadline(t *testing.T) {
	ended := fmt.Errorf("the provider: %w", context.DeadlineExceeded)
	for _, test := range []struct {
		in   time.Duration // until the deadline
		err  error
		left bool
	}{
		{-time.Second, ended, true},
		{-time.Second, errors.New("no cover"), false},
		{time.Hour, ended, false},
		{0, ended, false}, // none
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		if test.in != 0 {
			ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(test.in))
			defer cancel()
			r = r.WithContext(ctx)
		}
		var outer adapter.Open
		answered, committed, status, size := false, false, 0, int64(0)
		c := &echoContext{r}
		x := &adapter.EchoCall[*echoContext]{
			Context: c,
			Outer:   &outer,
			Next:    func(*echoContext) error { return test.err },
			Enter: func(w http.ResponseWriter) *adapter.EchoWriter {
				response := adapter.EchoResponse{Status: &status, Size: &size, Committed: &committed}
				return &adapter.EchoWriter{ResponseWriter: w, Response: response}
			},
			Exit:   func() {},
			Answer: func(error) { answered, committed = true, true },
		}
		x.Run(httptest.NewRecorder(), r.WithContext(t.Context()), false)
		if left := outer.LeftOpen() != nil; left != test.left || answered == left || !errors.Is(x.Err, test.err) || c.r != r {
			t.Errorf("%+v: left %t, answered %t, error %v", test, left, answered, x.Err)
		}
	}
}
