package otelonce_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceguard/onceguard/contrib/otelonce"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

func TestFirstRequestIsOneTrace(t *testing.T) {
	t.Parallel()
	s := newSite(t, created, settings{middleware: []middleware.Option{middleware.WithAtMostOnce()}})
	s.send("k")
	server, others := s.trace()
	if got, want := named(others), "onceguard.claim onceguard.settle"; got != want {
		t.Errorf("spans %q, want %q", got, want)
	}
	var redisSpans int
	for _, span := range others {
		if span.SpanContext.TraceID() != server.SpanContext.TraceID() {
			t.Errorf("%s is not in the trace", span.Name)
		}
		if ours := strings.HasPrefix(span.Name, "onceguard."); ours && span.Parent.SpanID() != server.SpanContext.SpanID() {
			t.Errorf("%s is not a child of the server span", span.Name)
		}
		if span.StartTime.Before(server.StartTime) || span.EndTime.After(server.EndTime) || !span.EndTime.After(span.StartTime) {
			t.Errorf("%s lasts from %v to %v, the server span from %v to %v",
				span.Name, span.StartTime, span.EndTime, server.StartTime, server.EndTime)
		}
		if !strings.HasPrefix(span.Name, "onceguard.") {
			redisSpans++
		}
	}
	if redisSpans < 3 {
		t.Errorf("%d spans of Redis, want one for each command", redisSpans)
	}
	got := attributesOf(server.Attributes)
	if want := "onceguard.key=" + s.server.Keys(t)[0] + ",onceguard.outcome=executed,onceguard.record.size="; !strings.HasPrefix(got, want) {
		t.Errorf("attributes %s, want %s", got, want)
	}
	if len(server.Links) != 0 || len(server.Events) != 0 || server.Status.Code != codes.Unset {
		t.Errorf("links %v, events %v and status %v, want none", server.Links, server.Events, server.Status)
	}
}

func TestReplayLinksToTheFirstRun(t *testing.T) {
	t.Parallel()
	s := newSite(t, created, settings{})
	s.send("k")
	first, _ := s.trace()
	s.send("k")
	again, others := s.trace()
	if got := named(others); got != "onceguard.claim" {
		t.Errorf("spans %q, want the claim", got)
	}
	if len(again.Links) != 1 {
		t.Fatalf("%d links, want one", len(again.Links))
	}
	link := again.Links[0].SpanContext
	if link.TraceID() != first.SpanContext.TraceID() || link.SpanID() != first.SpanContext.SpanID() || !link.IsRemote() {
		t.Errorf("link %v, want %v", link, first.SpanContext)
	}
	if got := attributesOf(again.Attributes); !strings.Contains(got, "onceguard.outcome=replayed") || !strings.Contains(got, "onceguard.replay.age=") {
		t.Errorf("attributes %s", got)
	}
}

// A mismatch tells of the request that has the key.
func TestReusedKey(t *testing.T) {
	t.Parallel()
	s := newSite(t, created, settings{})
	s.send("k")
	s.trace()
	s.sendBody("k", "another")
	server, _ := s.trace()
	got := attributesOf(server.Attributes)
	if !strings.Contains(got, "onceguard.outcome=reused") || !strings.Contains(got, "onceguard.first.running=false") || !strings.Contains(got, "onceguard.first.age=") {
		t.Errorf("attributes %s", got)
	}
}

// What is not sampled makes no spans, and stores no trace that nobody could look at.
func TestUnsampledRequest(t *testing.T) {
	t.Parallel()
	sampler := &switching{on: false}
	s := newSite(t, created, settings{sampler: sdktrace.ParentBased(sampler)})
	s.send("k")
	if all := s.spans.GetSpans(); len(all) > 0 {
		t.Errorf("spans %v", all)
	}
	sampler.on = true
	s.send("k")
	if server, _ := s.trace(); server.Name == "" || len(server.Links) != 0 {
		t.Errorf("links %v, want none", server.Links)
	}
}

// switching is a sampler for traces that begin one after the other.
type switching struct{ on bool }

func (s *switching) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if s.on {
		return sdktrace.AlwaysSample().ShouldSample(p)
	}
	return sdktrace.NeverSample().ShouldSample(p)
}

func (*switching) Description() string { return "switching" }

// turnstile is a hook that keeps commands back until it is opened.
type turnstile struct{ entered, open chan struct{} }

func (h *turnstile) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *turnstile) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "set" {
			h.entered <- struct{}{}
			<-h.open
		}
		return next(ctx, cmd)
	}
}

func (h *turnstile) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// crowd sends 24 requests of which 20 claim in batches, lets the runs be renewed while a duplicate waits, and returns
// the spans of Redis that belong to no request's trace.
func crowd(t *testing.T, with settings) (orphans tracetest.SpanStubs) {
	t.Helper()
	const direct, batched = 4, 20
	hook := &turnstile{make(chan struct{}, 100), make(chan struct{})}
	finish := make(chan struct{})
	with.hook = hook
	with.middleware = []middleware.Option{middleware.WithWait(time.Minute)}
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) { <-finish; created(w, r) }, with)
	var requests sync.WaitGroup
	send := func(n int, prefix string) {
		for i := range n {
			requests.Go(func() { s.send(prefix + string(rune('a'+i))) })
		}
	}
	send(direct, "first")
	for range direct {
		<-hook.entered
	}
	send(batched, "then")
	await(t, func(st lock.Stats) bool { return st.Queued == batched }, s.locker)
	close(hook.open)
	await(t, func(st lock.Stats) bool { return st.Leases == direct+batched && st.Renewals > 0 }, s.locker)
	send(1, "first")
	await(t, func(st lock.Stats) bool { return st.Subscriptions == 1 }, s.locker)
	close(finish)
	requests.Wait()
	if st := s.locker.Stats(); st.Batches >= st.Commands {
		t.Errorf("%+v, want commands that travelled together", st)
	}
	ofRequests := map[trace.TraceID]bool{}
	all := s.spans.GetSpans()
	for _, span := range all {
		if span.Name == "server" {
			ofRequests[span.SpanContext.TraceID()] = true
		}
	}
	if len(ofRequests) != direct+batched+1 {
		t.Errorf("%d traces of requests", len(ofRequests))
	}
	for _, span := range all {
		if !ofRequests[span.SpanContext.TraceID()] {
			orphans = append(orphans, span)
		}
	}
	return orphans
}

func await(t *testing.T, until func(lock.Stats) bool, l *lock.Locker) {
	t.Helper()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	deadline := time.After(20 * time.Second)
	for !until(l.Stats()) {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("still %+v", l.Stats())
		}
	}
}

func TestBatchesAreNoTraces(t *testing.T) {
	t.Parallel()
	short := lock.WithTTL(3 * time.Second)
	for _, span := range crowd(t, settings{lock: []lock.Option{short, otelonce.Untraced()}}) {
		t.Errorf("a trace of its own: %s", span.Name)
	}
	if orphans := crowd(t, settings{lock: []lock.Option{short}}); len(orphans) == 0 {
		t.Error("no traces of their own without Untraced: this test shows nothing")
	}
}

// Where Redis fails, the phase's span says so, and the server span has the error and no status.
func TestErrors(t *testing.T) {
	t.Parallel()
	s := newSite(t, created, settings{hook: failing{}})
	if w := s.send("k"); w.Code != http.StatusServiceUnavailable {
		t.Fatalf("status %d", w.Code)
	}
	server, others := s.trace()
	if len(server.Events) != 1 || server.Events[0].Name != "exception" || server.Status.Code != codes.Unset {
		t.Errorf("events %v and status %v, want an exception", server.Events, server.Status)
	} else if got := attributesOf(server.Events[0].Attributes); !strings.HasPrefix(got, "exception.message=") ||
		!strings.HasSuffix(got, ",exception.type=_OTHER") {
		t.Errorf("exception %s, want the message and the word of error.type", got)
	}
	for _, span := range others {
		if span.Name == "onceguard.claim" && (span.Status.Code != codes.Error || attributesOf(span.Attributes) != "error.type=_OTHER") {
			t.Errorf("claim: status %v, %s", span.Status, attributesOf(span.Attributes))
		}
	}
	if named(others) != "onceguard.claim" {
		t.Errorf("spans %q", named(others))
	}
}

type failing struct{}

func (failing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "set" {
			return next(ctx, cmd)
		}
		err := errors.New("the hook's")
		cmd.SetErr(err)
		return err
	}
}

func (failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
