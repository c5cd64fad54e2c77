package middleware_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// stack is a protected handler with the middlewares around it that docs/reference.md lists, in its order, behind a router.
type stack struct {
	*site
	panics chan any // what Recoverer has logged
}

const pattern = "/users/{user}/payments"

// overStacks runs test for each protocol and each router.
func overStacks(t *testing.T, test func(t *testing.T, build func(http.HandlerFunc) *stack)) {
	t.Helper()
	overAll(t, func(t *testing.T, protocol string) {
		for _, router := range []string{"chi", "ServeMux"} {
			t.Run(router, func(t *testing.T) {
				t.Parallel()
				test(t, func(h http.HandlerFunc) *stack { return newStack(t, protocol, router, h) })
			})
		}
	})
}

func newStack(t *testing.T, protocol, router string, h http.HandlerFunc) *stack {
	t.Helper()
	s := &stack{&site{t: t, events: make(chan middleware.Event, 100)}, make(chan any, 100)}
	once := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithRequired(),
		middleware.WithObserver(func(_ context.Context, e middleware.Event) { s.events <- e }))
	around := []func(http.Handler) http.Handler{
		chimiddleware.RequestID, echoRequestID, s.logged, cors,
		chimiddleware.Recoverer,
		hurry(chimiddleware.Timeout),
		chimiddleware.Compress(5, "application/json"),
		chimiddleware.Throttle(100),
	}
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		h(w, r)
	})
	var handler http.Handler
	switch router {
	case "chi":
		r := chi.NewRouter()
		r.Use(around...)
		r.With(once).Post(pattern, counted)
		handler = r
	case "ServeMux":
		mux := http.NewServeMux()
		mux.Handle("POST "+pattern, once(counted))
		handler = mux
		for _, m := range slices.Backward(around) {
			handler = m(handler)
		}
	}
	url, transport := listen(t, protocol, handler)
	s.url, s.client = url, &http.Client{Transport: transport}
	return s
}

// send sends ann's payment to the stack.
func (s *stack) send(edits ...edit) answer {
	s.t.Helper()
	return s.site.send(append([]edit{target("/users/ann/payments"), header("Origin", "https://shop.example")}, edits...)...)
}

// echoRequestID is today's id on the response.
func echoRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", chimiddleware.GetReqID(r.Context()))
		next.ServeHTTP(w, r)
	})
}

// cors allows and exposes what docs/reference.md lists.
func cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("Vary", "Origin")
		h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", "POST")
			h.Set("Access-Control-Allow-Headers", "Idempotency-Key")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		h.Set("Access-Control-Expose-Headers", "Idempotent-Replayed, Retry-After, X-Should-Retry, Location")
		next.ServeHTTP(w, r)
	})
}

// hurry gives a request with X-Hurry two seconds, and all others an hour.
func hurry(timeout func(time.Duration) func(http.Handler) http.Handler) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		short, long := timeout(2*time.Second)(next), timeout(time.Hour)(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Hurry") != "" {
				short.ServeHTTP(w, r)
				return
			}
			long.ServeHTTP(w, r)
		})
	}
}

// logged keeps what Recoverer logs.
func (s *stack) logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, chimiddleware.WithLogEntry(r, panicLog{s.panics}))
	})
}

type panicLog struct{ panics chan any }

func (panicLog) Write(int, int, http.Header, time.Duration, any) {}
func (l panicLog) Panic(v any, _ []byte)                         { l.panics <- v }

// conformance: 15, 16, 17, 18, 33, 41, 43
func TestStack(t *testing.T) {
	overStacks(t, func(t *testing.T, build func(http.HandlerFunc) *stack) {
		text := `{"list":"` + strings.Repeat("payment ", 500) + `"}`
		s := build(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("ETag", `"v1"`)
			w.Header().Set("Location", "/payments/1")
			w.Header().Add("Vary", "Accept")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, text)
		})
		for _, first := range []string{"gzip", "identity"} {
			for n, accepted := range []string{first, "gzip", "identity", "gzip"} {
				id := fmt.Sprint(first, n)
				a := s.send(key(first), header("Accept-Encoding", accepted), header("X-Request-Id", id))
				s.want(a, http.StatusCreated, map[bool]middleware.Outcome{true: middleware.Executed, false: middleware.Replayed}[n == 0])
				want := http.Header{
					"Etag": {`"v1"`}, "Location": {"/payments/1"}, "X-Request-Id": {id}, "Vary": {"Origin", "Accept"},
					"Access-Control-Allow-Origin": {"https://shop.example"},
				}
				if accepted == "gzip" {
					want["Content-Encoding"] = []string{"gzip"}
					want.Add("Vary", "Accept-Encoding")
					a.body = unzipped(t, a.body)
				}
				if n > 0 {
					want["Idempotent-Replayed"] = []string{"true"}
				}
				for _, name := range append(keysOf(want), "Content-Encoding", "Idempotent-Replayed") {
					if !slices.Equal(a.header[name], want[name]) {
						t.Errorf("%s, then %s: %s: %q, want %q", first, accepted, name, a.header[name], want[name])
					}
				}
				if a.body != text {
					t.Errorf("%s, then %s: body %s", first, accepted, outline(a.body))
				}
			}
		}
		s.wantRuns(2)
	})
}

func unzipped(t *testing.T, body string) string {
	t.Helper()
	r, err := gzip.NewReader(strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return ""
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Error(err)
	}
	return string(plain)
}

// An http.TimeoutHandler outside answers 503, and its deadline reaches the run, whose answer is there for the retry.
//
// conformance: 48
func TestTimeoutHandlerOutside(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		answered := make(chan struct{})
		s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			<-answered // 503 is out
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "late")
		})
		s.outer = hurry(func(d time.Duration) func(http.Handler) http.Handler {
			return func(next http.Handler) http.Handler { return http.TimeoutHandler(next, d, "too late") }
		})
		a := s.send(header("X-Hurry", "yes"))
		close(answered)
		if a.status != http.StatusServiceUnavailable || a.body != "too late" {
			t.Errorf("%d %q, want TimeoutHandler's 503", a.status, a.body)
		}
		if e := s.event(); e.Outcome != middleware.Executed || e.Status != http.StatusCreated {
			t.Errorf("%+v, want executed, 201", e)
		}
		a = s.send()
		s.want(a, http.StatusCreated, middleware.Replayed)
		if a.body != "late" {
			t.Errorf("the retry got %q", a.body)
		}
		s.wantRuns(1)
	})
}

// conformance: 13, 50
func TestCORS(t *testing.T) {
	overStacks(t, func(t *testing.T, build func(http.HandlerFunc) *stack) {
		s := build(payOnce())
		preflight := s.send(noKey, method(http.MethodOptions), header("Access-Control-Request-Method", "POST"),
			header("Access-Control-Request-Headers", "idempotency-key"))
		if preflight.status != http.StatusNoContent || preflight.header.Get("Access-Control-Allow-Headers") != "Idempotency-Key" {
			t.Errorf("preflight %+v", preflight)
		}
		for _, outcome := range []middleware.Outcome{middleware.Executed, middleware.Replayed} {
			a := s.send()
			s.want(a, http.StatusCreated, outcome)
			for name, want := range map[string]string{
				"Access-Control-Allow-Origin":   "https://shop.example",
				"Access-Control-Expose-Headers": "Idempotent-Replayed, Retry-After, X-Should-Retry, Location",
				"Vary":                          "Origin",
			} {
				if got := a.header[name]; !slices.Equal(got, []string{want}) {
					t.Errorf("%s: %s %q, want %q once", outcome, name, got, want)
				}
			}
		}
		a := s.send(body("application/json", "{}"))
		s.want(a, http.StatusUnprocessableEntity, middleware.Reused)
		if a.header.Get("Access-Control-Allow-Origin") == "" {
			t.Error("a page cannot read the problem")
		}
		s.wantRuns(1)
	})
}

// conformance: 49
func TestRequestBehindRouters(t *testing.T) {
	overStacks(t, func(t *testing.T, build func(http.HandlerFunc) *stack) {
		var chunked atomic.Bool
		s := build(func(w http.ResponseWriter, r *http.Request) {
			got, err := io.ReadAll(r.Body)
			if string(got) != payment || err != nil {
				t.Errorf("body %q, %v", got, err)
			}
			length, checksum := int64(len(payment)), ""
			if chunked.Load() {
				length, checksum = -1, "abc"
			}
			if r.ContentLength != length || r.Trailer.Get("X-Checksum") != checksum || r.GetBody != nil || r.RequestURI != r.URL.Path {
				t.Errorf("length %d, trailer %v, GetBody %v, URI %s", r.ContentLength, r.Trailer, r.GetBody != nil, r.RequestURI)
			}
			name, route := r.PathValue("user"), strings.TrimPrefix(r.Pattern, "POST ")
			if ctx := chi.RouteContext(r.Context()); ctx != nil {
				name, route = chi.URLParam(r, "user"), ctx.RoutePattern()
			}
			if name != "ann" || route != pattern {
				t.Errorf("user %q, pattern %q", name, route)
			}
			w.WriteHeader(http.StatusCreated)
		})
		s.want(s.send(), http.StatusCreated, middleware.Executed)
		chunked.Store(true)
		s.want(s.send(key("k2"), func(r *http.Request) {
			r.ContentLength = -1
			r.Trailer = http.Header{"X-Checksum": {"abc"}}
		}), http.StatusCreated, middleware.Executed)
	})
}
