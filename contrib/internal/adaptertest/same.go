package adaptertest

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"testing"

	"github.com/onceguard/onceguard/middleware"
)

// ways are those to answer that all frameworks have.
var ways = map[string]Handler{
	"JSON":        func(c Context) error { return c.JSON(201, map[string]any{"id": 1}) },
	"nothing":     func(Context) error { return nil },
	"failure":     func(c Context) error { return c.Fail(402) },
	"Early Hints": EarlyHints,
	"a header": func(c Context) error {
		c.Writer().Header().Set("Location", "/orders/1")
		return c.NoContent(303)
	},
	"Flush": func(c Context) error {
		_ = c.String(201, "a")
		_ = http.NewResponseController(c.Writer()).Flush()
		_, err := c.Writer().Write([]byte("b"))
		return err
	},
}

// What the client gets, and what a middleware outside sees, is the same without the package, with it, and on a replay; and
// so in shadow.
func (f Framework) same(t *testing.T) {
	all := maps.Clone(ways)
	maps.Copy(all, f.Ways)
	for name, h := range all {
		t.Run(name, func(t *testing.T) { f.sameIn(t, h, false) })
		t.Run(name+", in shadow", func(t *testing.T) { f.sameIn(t, h, true, middleware.WithShadow()) })
	}
}

func (f Framework) sameIn(t *testing.T, h Handler, shadow bool, around ...any) {
	t.Helper()
	s := f.NewSite(t, around...)
	s.Router.Add(http.MethodPost, "/bare/:id", h)
	s.Protect(h)
	bare := s.Post("/bare/42", "k", "{}")
	bareSeen := <-s.seen
	for _, outcome := range []middleware.Outcome{middleware.Executed, middleware.Replayed} {
		if bare.Status >= 500 {
			outcome = middleware.Freed
		}
		replay := outcome == middleware.Replayed && !shadow
		got, gotSeen, e := s.Pay("{}"), <-s.seen, <-s.Events
		if e.Outcome != outcome || e.Status != bare.Status || e.Differs {
			t.Errorf("the Event is %+v, want %s", e, outcome)
		}
		for _, header := range []http.Header{got.Header, bare.Header} {
			for _, own := range []string{"Date", "Idempotent-Replayed", "Content-Length"} {
				header.Del(own)
			}
		}
		early := slices.Equal(got.Early, bare.Early) || replay && got.Early == nil
		got.Early = bare.Early
		if !early || !reflect.DeepEqual(got, bare) {
			t.Errorf("%s: got %+v, without this package %+v", outcome, got, bare)
		}
		if !shadow && (gotSeen.Err == nil) != (bareSeen.Err == nil || replay) {
			t.Errorf("%s: the error is %v outside, and %v without this package", outcome, gotSeen.Err, bareSeen.Err)
		}
		// An error is rendered inside, so that the outer middlewares already see its response. The header of an empty
		// response is sent at once, and a 103 is not the status.
		want := Seen{bare.Status, int64(len(bare.Body)), true, gotSeen.Err}
		if !shadow && gotSeen != want {
			t.Errorf("%s: outside is seen %+v, want %+v", outcome, gotSeen, want)
		}
	}
}
