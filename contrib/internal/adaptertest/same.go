package adaptertest

import (
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// ErrNoCover is a handler's error.
var ErrNoCover = errors.New("no cover")

// ways are those to answer that all frameworks have.
var ways = map[string]Handler{
	"JSON":    func(c Context) error { return c.JSON(http.StatusCreated, map[string]any{"id": 1}) },
	"String":  func(c Context) error { return c.String(http.StatusAccepted, "paid") },
	"status":  func(c Context) error { return c.NoContent(http.StatusNoContent) },
	"nothing": func(Context) error { return nil },
	"a header": func(c Context) error {
		c.Writer().Header().Set("Location", "/orders/1")
		return c.NoContent(http.StatusCreated)
	},
	"an answer, and a status": func(c Context) error {
		_ = c.String(http.StatusCreated, "paid")
		return c.NoContent(http.StatusTeapot)
	},
	"an answer, and an error": func(c Context) error {
		_ = c.String(http.StatusBadRequest, "no")
		return ErrNoCover
	},
	"Flush": func(c Context) error {
		_ = c.String(http.StatusCreated, "a")
		_ = http.NewResponseController(c.Writer()).Flush()
		_, err := c.Writer().Write([]byte("b"))
		return err
	},
	"a write deadline": func(c Context) error {
		if err := http.NewResponseController(c.Writer()).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			return err
		}
		return c.NoContent(http.StatusCreated)
	},
	"Early Hints": Context.EarlyHints,
}

// AfterEarlyHints returns handlers that answer after a 103, where the framework drops all but the body.
func AfterEarlyHints() map[string]Handler {
	handlers := map[string]Handler{}
	for name, h := range map[string]Handler{
		"a status": func(c Context) error { return c.NoContent(http.StatusCreated) },
		"a body":   pay,
		"JSON":     func(c Context) error { return c.JSON(http.StatusCreated, "paid") },
	} {
		handlers["Early Hints, and "+name] = func(c Context) error {
			_ = c.EarlyHints()
			return h(c)
		}
	}
	return handlers
}

// eachWay runs test for each way to answer.
func (f Framework[M]) eachWay(t *testing.T, test func(*testing.T, Handler)) {
	all := maps.Clone(ways)
	maps.Copy(all, f.Handlers)
	for name, h := range all {
		t.Run(name, func(t *testing.T) { test(t, h) })
	}
}

// What the client gets, and what a middleware outside sees, is the same without the package, with it, and on a replay.
func (f Framework[M]) same(t *testing.T) {
	f.eachWay(t, func(t *testing.T, h Handler) {
		s := f.NewSite(t)
		s.Router.Add(http.MethodPost, "/bare", h)
		s.Protect(h)
		bare, bareSeen := s.Post("/bare", "k", "{}"), <-s.Seen
		outcome, outcomeAgain := middleware.Executed, middleware.Replayed
		kept := middleware.StoreDefault(bare.Status)
		if !kept {
			outcome, outcomeAgain = middleware.Freed, middleware.Freed
		}

		first, firstSeen := s.Pay("k", "{}"), <-s.Seen
		e := s.WantEvent(outcome)
		again, againSeen := s.Pay("k", "{}"), <-s.Seen
		eAgain := s.WantEvent(outcomeAgain)

		if again.Replayed() != kept || first.Replayed() || e.Status != bare.Status || eAgain.Status != bare.Status {
			t.Errorf("replayed: %v, then %v; the Events have the statuses %d and %d", first.Replayed(), again.Replayed(), e.Status, eAgain.Status)
		}
		WantSame(t, "the first response", first, bare)
		if !slices.Equal(first.Early, bare.Early) || kept && len(again.Early) > 0 {
			t.Errorf("before the first response there is %v, before the replay %v; without this package %v", first.Early, again.Early, bare.Early)
		}
		WantSame(t, "the replay", again, bare)
		if !reflect.DeepEqual(firstSeen.Err, bareSeen.Err) {
			t.Errorf("a middleware outside gets the error %v, and %v without this package", firstSeen.Err, bareSeen.Err)
		}
		// An error is rendered inside, so that the outer middlewares already see its response. The header of an empty
		// response is sent at once, and a 103 is not the status.
		want := Seen{bare.Status, int64(len(bare.Body)), true, nil}
		firstSeen.Err, againSeen.Err = nil, nil
		if firstSeen != want || againSeen != want {
			t.Errorf("a middleware outside sees %+v, then %+v, want %+v", firstSeen, againSeen, want)
		}
	})
}

// In shadow, too, and then for every request.
func (f Framework[M]) sameInShadow(t *testing.T) {
	f.eachWay(t, func(t *testing.T, h Handler) {
		s := f.NewSite(t, middleware.WithShadow())
		s.Router.Add(http.MethodPost, "/bare", h)
		s.Protect(h)
		bare := s.Post("/bare", "k", "{}")
		outcomes := []middleware.Outcome{middleware.Executed, middleware.Replayed}
		if !middleware.StoreDefault(bare.Status) {
			outcomes = []middleware.Outcome{middleware.Freed, middleware.Freed}
		}
		for _, outcome := range outcomes {
			got := s.Pay("k", "{}")
			WantSame(t, string(outcome), got, bare)
			if e := s.WantEvent(outcome); e.Status != bare.Status || e.Differs || !slices.Equal(got.Early, bare.Early) {
				t.Errorf("before the response there is %v, without this package %v; the Event has the status %d and differs %t",
					got.Early, bare.Early, e.Status, e.Differs)
			}
		}
		s.WantRuns(2)
	})
}
