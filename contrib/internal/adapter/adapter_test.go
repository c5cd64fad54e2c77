package adapter_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/contrib/internal/adapter"
	"github.com/onceguard/onceguard/keyfunc"
)

// passing is a call of which only Pass may be called.
type passing struct {
	adapter.EchoCall[*echoContext]
}

func (passing) ReadError(err error) error { return err }

// A request that passes unprotected has its body, which the middleware has read and put back.
func TestPassWithTheBody(t *testing.T) {
	c := &echoContext{httptest.NewRequest(http.MethodPost, "/", strings.NewReader("paid"))}
	got := ""
	x := &passing{adapter.EchoCall[*echoContext]{Context: c, Next: func(c *echoContext) error {
		body, err := io.ReadAll(c.r.Body)
		got = string(body)
		return err
	}}}
	protected := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		adapter.Next[*echoContext](w, r)
	})
	if adapter.Serve(protected, x, httptest.NewRecorder(), ""); got != "paid" || x.Err != nil {
		t.Errorf("the handler reads %q, %v", got, x.Err)
	}
}

// Outside of Serve there is no user.
func TestUser(t *testing.T) {
	user := adapter.User("echoonce", func(*echoContext) string { return "ann" })
	if _, err := user(httptest.NewRequest(http.MethodPost, "/", nil)); !errors.Is(err, keyfunc.ErrNoUser) {
		t.Errorf("error %v, want ErrNoUser", err)
	}
	defer func() {
		if got := recover(); got != "echoonce.User: fn is nil" {
			t.Errorf("panic %v", got)
		}
	}()
	adapter.User[*echoContext]("echoonce", nil)
}
