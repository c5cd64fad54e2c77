// What the callers of the tables do with a site: two kinds of requests, each with what must have been done at the end.

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
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

// repeat returns a call of caller i with a key that is new each time. It returns an error unless the answer is the handler's.
func (w *web) repeat(i int, key func() string) func() error {
	visit := w.visitors[i]
	return func() error {
		status, got, err := visit(key())
		if err == nil && (status != http.StatusCreated || !bytes.Equal(got, w.body)) {
			err = fmt.Errorf("status %d and %d bytes, want the handler's: %.200s", status, len(got), got)
		}
		return err
	}
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

func (w *web) fresh() subject {
	return subject{
		caller: func(i int) func() error { return w.repeat(i, w.keys[i].fresh) },
		end:    func(_ context.Context, answers []int) error { return w.wantRuns(sum(answers)) },
	}
}

// replays are requests that were completed before, for each caller another one.
func replays(open opener) setUp {
	return onSite(open, func(w *web) subject {
		same := func(i int) func() error {
			key := keyText(i, 0, 1)
			return w.repeat(i, func() string { return key })
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
