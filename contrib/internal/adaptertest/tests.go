package adaptertest

import (
	"net/http"
	"testing"
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
}

// Requests without a route get the framework's own answer, and take no key. Mounted twice, it takes effect once.
func (f Framework) noRoute(t *testing.T) {
	s := f.NewSite(t)
	s.Router.Use(s.Once)
	s.Router.Add(http.MethodGet, "/payments", Pay)
	s.Protect(Pay)
	for path, want := range map[string]string{
		"/nowhere": f.NotFound, "/payments": f.NotAllowed, "/payments/42": "paid",
	} {
		for range 2 {
			a := s.Post(path, "k"+path, "1")
			if e := <-s.Events; a.Body != want || (e.Outcome == "freed") != (want != "paid") || s.runs > 1 {
				t.Errorf("%s: %q, outcome %s, want %q", path, a.Body, e.Outcome, want)
			}
		}
	}
}
