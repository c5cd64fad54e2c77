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
	"JSON":        func(c Context) error { return c.JSON(http.StatusCreated, map[string]any{"id": 1}) },
	"status":      func(c Context) error { return c.NoContent(http.StatusNoContent) },
	"nothing":     func(Context) error { return nil },
	"failure":     func(c Context) error { return c.Fail(http.StatusPaymentRequired) },
	"Early Hints": EarlyHints,
	"a header": func(c Context) error {
		c.Writer().Header().Set("Location", "/orders/1")
		return c.NoContent(http.StatusSeeOther)
	},
	"an answer, and a status": func(c Context) error {
		_ = Pay(c)
		return c.NoContent(http.StatusTeapot)
	},
	"an answer, and an error": func(c Context) error {
		_ = Pay(c)
		return ErrNoCover
	},
	"Flush": func(c Context) error {
		_ = c.String(http.StatusCreated, "a")
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

func (f Framework) sameIn(t *testing.T, h Handler, shadow bool, opts ...middleware.Option) {
	t.Helper()
	s := f.NewSite(t, opts...)
	s.Router.Add(http.MethodPost, "/bare/:id", h)
	s.Protect(h)
	bare := s.Post("/bare/42", "k", "{}")
	bareSeen := <-s.seen
	for _, outcome := range []middleware.Outcome{middleware.Executed, middleware.Replayed} {
		kept := middleware.StoreDefault(bare.Status)
		if !kept {
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
		if !shadow && (gotSeen.err == nil) != (bareSeen.err == nil || replay) {
			t.Errorf("%s: a middleware outside gets the error %v, and %v without this package", outcome, gotSeen.err, bareSeen.err)
		}
		// An error is rendered inside, so that the outer middlewares already see its response. The header of an empty
		// response is sent at once, and a 103 is not the status.
		want := Seen{bare.Status, int64(len(bare.Body)), true}
		if !shadow && gotSeen.Seen != want {
			t.Errorf("%s: a middleware outside sees %+v, want %+v", outcome, gotSeen, want)
		}
	}
}
