package adaptertest

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/onceguard/onceguard/keyfunc"
)

// Tests runs the tests of a package.
func (f Framework) Tests(t *testing.T) {
	for _, rows := range []map[string]Row{f.rows(), f.Rows} {
		for name, row := range rows {
			t.Run(name, func(t *testing.T) { f.run(t, row) })
		}
	}
	t.Run("same", f.same)
	t.Run("no route", f.noRoute)
	t.Run("mounted twice", f.mountedTwice)
	t.Run("user", f.user)
	t.Run("panics", f.panics)
}

// Requests without a route get the framework's own answer, and take no key.
func (f Framework) noRoute(t *testing.T) {
	s := f.NewSite(t)
	s.Router.Use(s.Once)
	s.Router.Add(http.MethodGet, "/payments", Pay)
	for path, want := range map[string]string{"/nowhere": f.NotFound, "/payments": f.NotAllowed} {
		for range 2 {
			a := s.Post(path, "k"+path, "1")
			if e := <-s.Events; e.Outcome != "freed" || a.Body != want {
				t.Errorf("%s: %q, outcome %s, want %q", path, a.Body, e.Outcome, want)
			}
		}
	}
}

// Mounted twice, it takes effect once.
func (f Framework) mountedTwice(t *testing.T) {
	s := f.NewSite(t)
	s.Router.Use(s.Once)
	s.Protect(Pay)
	for range 2 {
		if a := s.Pay("1"); a.Body != "paid" || s.runs != 1 {
			t.Errorf("%+v after %d runs", a, s.runs)
		}
	}
}

// The user comes from the framework's own context. Elsewhere there is none.
func (f Framework) user(t *testing.T) {
	s := f.NewSite(t)
	user := f.User(func(c Context) string { return c.Request().Header.Get("X-User") })
	s.Once = f.Idempotency(s.Locker, keyfunc.Standard(user))
	s.Protect(Pay)
	var got []int
	r := httptest.NewRequest(http.MethodPost, "/payments/42", nil)
	r.Header.Set("Idempotency-Key", "k")
	for _, name := range []string{"ann", "bob", "ann", ""} {
		w := httptest.NewRecorder()
		r.Header.Set("X-User", name)
		s.Router.ServeHTTP(w, r)
		got = append(got, w.Code, s.runs)
	}
	if fmt.Sprint(got) != "[201 1 201 2 201 2 401 2]" {
		t.Errorf("statuses and runs: %v", got)
	}
	if _, err := user(r); !errors.Is(err, keyfunc.ErrNoUser) {
		t.Errorf("elsewhere: error %v, want ErrNoUser", err)
	}
}

func (f Framework) panics(t *testing.T) {
	for want, wrong := range map[string]func(){
		f.Package + ".User: fn is nil":              func() { f.User(nil) },
		"middleware.Idempotency: the locker is nil": func() { f.Idempotency(nil, keyfunc.Body()) },
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("panic %v, want %q", got, want)
				}
			}()
			wrong()
		}()
	}
}
