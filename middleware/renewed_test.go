package middleware_test

import (
	"context"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware"
)

// failing is a ResponseWriter that calls fail in its n-th call of Header or Written from now on.
type failing struct {
	discarded
	header, written int
	fail            func()
}

func (w *failing) count(n *int) {
	if *n--; *n == 0 {
		*n = 1 // the next call fails, too
		w.fail()
	}
}

func (w *failing) Header() http.Header {
	w.count(&w.header)
	return w.discarded.header
}

func (w *failing) Written() bool {
	w.count(&w.written)
	return false
}

// Whatever panics, the lease of the run is renewed no longer than a run may take: the key becomes free. If the handler
// has run, the observer is called.
func TestNoLeaseIsRenewedForEver(t *testing.T) {
	t.Parallel()
	keep := func(_ http.ResponseWriter, r *http.Request) { middleware.FromContext(r.Context()).Keep() }
	flush := func(w http.ResponseWriter, _ *http.Request) { _ = flushIt(w) }
	stops := func(fail func(), ops ...string) *memJournal {
		j := newJournal(false)
		j.setHooks(func(op string) error {
			for _, o := range ops {
				if o == op {
					fail()
				}
			}
			return nil
		}, nil)
		return j
	}
	sealed := func(fail func()) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_ = journal.Transact(r.Context(), func(seal func() (journal.Commit, error)) error {
				w.WriteHeader(http.StatusCreated)
				_, err := seal()
				fail()
				return err
			}, nil)
		}
	}
	type place struct {
		handler         http.HandlerFunc
		header, written int
		opts            []middleware.Option
	}
	for how, fail := range map[string]func(){"panics": func() { panic(http.ErrAbortHandler) }, "exits": runtime.Goexit} {
		trace := func(context.Context) string { fail(); return "" }
		for name, p := range map[string]place{
			"the handler":                   {handler: func(http.ResponseWriter, *http.Request) { fail() }},
			"the handler, kept":             {handler: func(w http.ResponseWriter, r *http.Request) { keep(w, r); fail() }},
			"WithStored":                    {handler: flush, opts: []middleware.Option{middleware.WithStored(func(int) bool { fail(); return false })}},
			"WithTraceparent":               {handler: func(http.ResponseWriter, *http.Request) {}, opts: []middleware.Option{middleware.WithTraceparent(trace)}},
			"WithTraceparent, kept":         {handler: keep, opts: []middleware.Option{middleware.WithTraceparent(trace)}},
			"Header before the run":         {handler: keep, header: 1},
			"Written before the run":        {handler: keep, written: 1},
			"Written after the run":         {handler: keep, written: 2},
			"Begin of a journal":            {handler: keep, opts: []middleware.Option{middleware.WithJournal(stops(fail, "begin"))}},
			"End of a journal":              {handler: keep, opts: []middleware.Option{middleware.WithJournal(stops(fail, "end"))}},
			"a transaction behind its seal": {handler: sealed(fail), opts: []middleware.Option{middleware.WithJournal(newJournal(false))}},
			"End, at most once": {
				handler: keep, opts: []middleware.Option{middleware.WithJournal(stops(fail, "end")), middleware.WithAtMostOnce()},
			},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := new(canned)
					runs, events := 0, 0
					opts := append([]middleware.Option{
						middleware.WithMaxDuration(20 * time.Second),
						middleware.WithObserver(func(context.Context, middleware.Event) { events++ }),
					}, p.opts...)
					_, send := protect(t, store, func(w http.ResponseWriter, r *http.Request) {
						runs++
						p.handler(w, r)
					}, opts...)
					w := &failing{discarded: discarded{header: http.Header{}}, header: p.header, written: p.written, fail: fail}
					if returned := inBubble(send, w); !returned() {
						t.Fatal("it hangs")
					}
					if runs != events {
						t.Errorf("the handler ran %d times, and the observer was called %d times", runs, events)
					}
					time.Sleep(time.Minute)
					before := store.renewed.Load()
					time.Sleep(time.Minute)
					if n := store.renewed.Load() - before; n > 0 {
						t.Errorf("%d renewals in the second minute after the end", n)
					}
				})
			})
		}
	}
}
