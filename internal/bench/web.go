package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// How many callers send the same request, and how long it takes to be answered.
const (
	crowd      = 8
	crowdDelay = 2 * time.Millisecond
)

// webContenders returns those who answer requests.
func webContenders(http bool) []contender {
	patient := openOurs(middleware.WithWait(10 * time.Second))
	all := []contender{
		{group: first, name: "handler", label: "the handler alone, net/http", setUp: unprotected(openHandler)},
		{group: first, name: "fiber-handler", label: "the handler alone, fiber", setUp: unprotected(openFiberHandler)},
		{group: first, name: "onceguard", label: "onceguard", baseline: "handler", setUp: firsts(openOurs())},
		{
			group: first, name: "onceguard-late", label: onDefaultsLabel, baseline: "handler",
			setUp: onDefaults(firsts(openOurs())),
		},
		{group: first, name: "fiber", label: fiberLabel, baseline: "fiber-handler", setUp: firsts(openFiber)},

		{group: replay, name: "onceguard", label: "onceguard", setUp: replays(openOurs())},
		{group: replay, name: "onceguard-late", label: onDefaultsLabel, setUp: onDefaults(replays(openOurs()))},
		{group: replay, name: "fiber", label: fiberLabel, setUp: replays(openFiber)},

		// fiber has no answer to a duplicate in flight: it waits.
		{group: inFlight, name: "onceguard", label: "onceguard", setUp: inFlights(openOurs())},

		{group: duplicates, name: "onceguard", label: "onceguard", least: crowd, setUp: crowds(patient)},
		{group: duplicates, name: "fiber", label: fiberLabel, least: crowd, setUp: crowds(openFiber)},
	}
	if http {
		const bare = "a handler with the bare commands"
		all = slices.Concat([]contender{
			{group: first, name: "bare", label: bare, baseline: "handler", setUp: firsts(openBare)},
			{group: replay, name: "bare-get", label: bare, setUp: replays(openBareGet)},
			{group: inFlight, name: "bare-claim", label: bare, setUp: inFlights(openBare)},
		}, all)
	}
	return all
}

// web is what the subjects on a site have in common.
type web struct {
	*site
	conditions
	visitors []visitor // by caller
	keys     []keys    // by caller
}

func newWeb(ctx context.Context, c conditions, open opener, s *service) (web, error) {
	s.body = c.body
	at, err := open(ctx, c, s)
	if err != nil {
		return web{}, err
	}
	w := web{site: at, conditions: c, keys: make([]keys, c.callers)}
	for i := range c.callers {
		w.visitors = append(w.visitors, at.visit())
		w.keys[i].caller = i
	}
	return w, nil
}

func (w *web) close() error { return w.site.close() }

// post is an error unless the answer has that status, and the service's body if it is its own.
func (w *web) post(v visitor, key string, want int) error {
	status, body, err := v.post(key)
	switch {
	case err != nil:
		return err
	case status != want:
		return fmt.Errorf("status %d, want %d: %.200s", status, want, body)
	case status == http.StatusCreated && !bytes.Equal(body, w.body):
		return fmt.Errorf("a body of %d bytes that is not the handler's", len(body))
	}
	return nil
}

// wantRuns is an error unless the handler ran so many times.
func (w *web) wantRuns(want int) error {
	if got := w.service.runs.Load(); got != int64(want) {
		return fmt.Errorf("the handler ran %d times, want %d", got, want)
	}
	return nil
}

// firstRequests are requests with fresh keys.
type firstRequests struct {
	web
	kept bool // in Redis
}

func firsts(open opener) func(context.Context, conditions) (subject, error) {
	return func(ctx context.Context, c conditions) (subject, error) {
		w, err := newWeb(ctx, c, open, new(service))
		return &firstRequests{web: w, kept: true}, err
	}
}

// unprotected are such requests where nobody looks at the key.
func unprotected(open opener) func(context.Context, conditions) (subject, error) {
	return func(ctx context.Context, c conditions) (subject, error) {
		w, err := newWeb(ctx, c, open, new(service))
		return &firstRequests{web: w}, err
	}
}

func (f *firstRequests) begin(context.Context) error {
	f.service.runs.Store(0)
	return nil
}

func (f *firstRequests) caller(i int) func() error {
	v, keys := f.visitors[i], &f.keys[i]
	return func() error { return f.post(v, keys.fresh(), http.StatusCreated) }
}

func (f *firstRequests) end(ctx context.Context, answers []int) error {
	want := sum(answers)
	if err := f.wantRuns(want); err != nil || !f.kept {
		return err
	}
	return f.store.wantKeys(ctx, want)
}

// replayed are requests that were completed before, for each caller another one.
type replayed struct{ web }

func replays(open opener) func(context.Context, conditions) (subject, error) {
	return func(ctx context.Context, c conditions) (subject, error) {
		w, err := newWeb(ctx, c, open, new(service))
		return &replayed{w}, err
	}
}

func (r *replayed) begin(context.Context) error {
	r.service.runs.Store(0)
	for i, v := range r.visitors {
		if err := r.post(v, r.key(i), http.StatusCreated); err != nil {
			return err
		}
	}
	return r.wantRuns(r.callers)
}

func (r *replayed) key(i int) string { return (&keys{caller: i}).fresh() }

func (r *replayed) caller(i int) func() error {
	v, key := r.visitors[i], r.key(i)
	return func() error { return r.post(v, key, http.StatusCreated) }
}

func (r *replayed) end(context.Context, []int) error { return r.wantRuns(r.callers) }

// inFlightRequests are requests whose first one runs all the while, for each caller another one. They are answered with
// 409.
type inFlightRequests struct {
	web
	held   []string   // by caller
	firsts chan error // what came of those that run
}

func inFlights(open opener) func(context.Context, conditions) (subject, error) {
	return func(ctx context.Context, c conditions) (subject, error) {
		w, err := newWeb(ctx, c, open, new(service))
		return &inFlightRequests{web: w, held: make([]string, c.callers)}, err
	}
}

func (f *inFlightRequests) begin(ctx context.Context) error {
	f.service.runs.Store(0)
	g := &gate{room: int64(f.callers), entered: make(chan struct{}, f.callers), open: make(chan struct{})}
	f.service.gate.Store(g)
	f.firsts = make(chan error, f.callers)
	for i := range f.callers {
		f.held[i] = f.keys[i].fresh()
		go func() { f.firsts <- f.post(f.visit(), f.held[i], http.StatusCreated) }()
	}
	for range f.callers {
		select {
		case <-g.entered:
		case err := <-f.firsts:
			close(g.open)
			return fmt.Errorf("a first one was answered before it ran (%v)", err)
		case <-ctx.Done():
			close(g.open)
			return context.Cause(ctx)
		}
	}
	return nil
}

func (f *inFlightRequests) caller(i int) func() error {
	v, key := f.visitors[i], f.held[i]
	return func() error { return f.post(v, key, http.StatusConflict) }
}

func (f *inFlightRequests) end(context.Context, []int) error {
	close(f.service.gate.Load().open)
	var err error
	for range f.callers {
		if firstErr := <-f.firsts; firstErr != nil {
			err = firstErr
		}
	}
	if err != nil {
		return fmt.Errorf("the first one: %w", err)
	}
	return f.wantRuns(f.callers)
}

// crowded are requests that eight callers send each, every one as soon as it has the answer to the one before. The
// first of them runs the handler, which takes its time, and the others get its response.
type crowded struct {
	web
	epoch int
}

func crowds(open opener) func(context.Context, conditions) (subject, error) {
	return func(ctx context.Context, c conditions) (subject, error) {
		w, err := newWeb(ctx, c, open, &service{delay: crowdDelay})
		return &crowded{web: w}, err
	}
}

func (d *crowded) begin(context.Context) error {
	d.service.runs.Store(0)
	d.epoch++
	return nil
}

func (d *crowded) caller(i int) func() error {
	v, keys := d.visitors[i], &keys{caller: i / crowd, next: d.epoch << 24}
	return func() error { return d.post(v, keys.fresh(), http.StatusCreated) }
}

func (d *crowded) end(ctx context.Context, answers []int) error {
	requests := 0
	for members := range slices.Chunk(answers, crowd) {
		requests += slices.Max(members)
	}
	if err := d.wantRuns(requests); err != nil {
		return err
	}
	return d.store.wantKeys(ctx, requests)
}

func sum(numbers []int) int {
	total := 0
	for _, n := range numbers {
		total += n
	}
	return total
}
