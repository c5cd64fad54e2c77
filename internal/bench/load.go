// What the callers of the tables do with a site: four kinds of requests, each with what must have been done at the end.

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// crowds are of so many callers, and the handler takes so long.
const (
	crowd      = 8
	crowdDelay = 2 * time.Millisecond
)

// web is a site with its callers.
type web struct {
	*site
	conditions
	service  *service
	visitors []visitor // by caller
	keys     []keys    // by caller
}

func newWeb(ctx context.Context, c conditions, open opener) (*web, error) {
	w := &web{conditions: c, service: &service{body: c.body}, keys: make([]keys, c.callers)}
	var err error
	if w.site, err = open(ctx, c, w.service); err != nil {
		return nil, err
	}
	if w.runs == nil {
		w.runs = func() (int64, error) { return w.service.runs.Swap(0), nil }
	}
	for i := range c.callers {
		w.visitors = append(w.visitors, w.newVisitor())
		w.keys[i].caller = i
	}
	return w, nil
}

// post sends a request. It returns an error unless the status is one of those wanted and, if it is 201, the body is that
// of the handler.
func post(visit visitor, key string, body []byte, want ...int) error {
	status, got, err := visit(key)
	switch {
	case err != nil:
		return err
	case !slices.Contains(want, status):
		return fmt.Errorf("status %d, want %d: %.200s", status, slices.Clone(want), got) // want stays on the stack
	case status == http.StatusCreated && !bytes.Equal(got, body):
		return fmt.Errorf("a body of %d bytes that is not the handler's", len(got))
	}
	return nil
}

// repeat returns a call of caller i with a key that is new each time.
func (w *web) repeat(i int, key func() string, want int) func() error {
	visit := w.visitors[i]
	return func() error { return post(visit, key(), w.body, want) }
}

// wantRuns returns an error unless the handler ran so many times since the call before.
func (w *web) wantRuns(want int) error {
	got, err := w.runs()
	if err == nil && got != int64(want) {
		err = fmt.Errorf("the handler ran %d times, want %d", got, want)
	}
	return err
}

// onSite returns the setUp of a subject on such a site.
func onSite(open opener, subjectOf func(*web) subject) setUp {
	return func(ctx context.Context, c conditions) (*subject, error) {
		w, err := newWeb(ctx, c, open)
		if err != nil {
			return nil, err
		}
		s := subjectOf(w)
		s.close = w.close
		return &s, nil
	}
}

// firsts are requests with fresh keys.
func firsts(open opener) setUp {
	return onSite(open, func(w *web) subject {
		s := w.fresh()
		s.end = func(ctx context.Context, answers []int) error {
			return errors.Join(w.wantRuns(sum(answers)), w.server.wantKeys(ctx, sum(answers)))
		}
		return s
	})
}

// unprotected are such requests to a site that stores nothing.
func unprotected(open opener) setUp { return onSite(open, (*web).fresh) }

func (w *web) fresh() subject {
	return subject{
		caller: func(i int) func() error { return w.repeat(i, w.keys[i].fresh, http.StatusCreated) },
		end:    func(_ context.Context, answers []int) error { return w.wantRuns(sum(answers)) },
	}
}

// replays are requests that were completed before, for each caller another one.
func replays(open opener) setUp {
	return onSite(open, func(w *web) subject {
		same := func(i int) func() error {
			key := keyText(i, 0, 1)
			return w.repeat(i, func() string { return key }, http.StatusCreated)
		}
		return subject{
			begin: func(context.Context) error {
				for i := range w.callers {
					if err := same(i)(); err != nil {
						return err
					}
				}
				return w.wantRuns(w.callers)
			},
			caller: same,
			end: func(ctx context.Context, _ []int) error {
				return errors.Join(w.wantRuns(0), w.server.wantKeys(ctx, w.callers))
			},
		}
	})
}

// inFlights are requests whose first one runs for the whole measurement, for each caller another one. The answer is 409.
func inFlights(open opener) setUp {
	return onSite(open, func(w *web) subject {
		held := make([]string, w.callers)
		var finished chan error // gets the outcome of each first request
		return subject{
			begin: func(context.Context) error {
				s := w.service
				s.runs.Store(0)
				s.held, s.entered, s.open = int64(w.callers), make(chan struct{}, w.callers), make(chan struct{})
				outcomes := make(chan error, w.callers)
				finished = outcomes
				for i := range held {
					held[i] = w.keys[i].fresh()
					go func() { outcomes <- post(w.newVisitor(), held[i], w.body, http.StatusCreated) }()
				}
				for range held {
					select {
					case <-s.entered:
					case err := <-outcomes:
						close(s.open)
						return fmt.Errorf("a first one was answered before it ran (%v)", err)
					}
				}
				return nil
			},
			caller: func(i int) func() error {
				return w.repeat(i, func() string { return held[i] }, http.StatusConflict)
			},
			end: func(context.Context, []int) error {
				close(w.service.open)
				err := w.wantRuns(w.callers)
				for range held {
					err = errors.Join(err, <-finished)
				}
				return err
			},
		}
	})
}

// crowds are requests that eight callers each send at about the same time. The first one runs the handler, which takes a
// while, and the others get its response. A caller sends the next request as soon as it has the answer.
func crowds(open opener) setUp {
	return onSite(open, func(w *web) subject {
		w.service.delay = crowdDelay
		measurement := 0
		return subject{
			begin: func(context.Context) error { measurement++; return nil },
			caller: func(i int) func() error {
				k := keys{caller: i / crowd, next: measurement << 24}
				return w.repeat(i, k.fresh, http.StatusCreated)
			},
			end: func(ctx context.Context, answers []int) error {
				requests := 0
				for members := range slices.Chunk(answers, crowd) {
					requests += slices.Max(members)
				}
				return errors.Join(w.wantRuns(requests), w.server.wantKeys(ctx, requests))
			},
		}
	})
}
