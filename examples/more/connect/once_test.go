package onceconnect

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

func TestMain(m *testing.M) { redistest.Main(m) }

type (
	amount  = wrapperspb.Int64Value
	payment = wrapperspb.StringValue
)

// protocols has the options of a client, the part of the media type by which the protocol is known, and whether it is tried
// over HTTP/2.
var protocols = map[string]struct {
	grpc  string
	http2 bool
	opts  []connect.ClientOption
}{
	"Connect":            {"", true, nil},
	"Connect, HTTP/1.1":  {"", false, nil},
	"Connect as JSON":    {"", true, []connect.ClientOption{connect.WithProtoJSON()}},
	"gRPC":               {"grpc+", true, []connect.ClientOption{connect.WithGRPC()}},
	"gRPC-Web":           {"grpc-web+", true, []connect.ClientOption{connect.WithGRPCWeb()}},
	"gRPC-Web, HTTP/1.1": {"grpc-web+", false, []connect.ClientOption{connect.WithGRPCWeb()}},
}

// service is a payment service on a real server, and its client.
type service struct {
	*testing.T
	http    *http.Client
	url     string // of the procedure
	opts    []connect.ClientOption
	events  chan middleware.Event
	runs    int
	entered chan bool // gets a value when a payment of 1 cent runs, which then waits for another
}

func start(t *testing.T, http2 bool, opts []connect.ClientOption) *service {
	t.Helper()
	s := &service{T: t, opts: opts, events: make(chan middleware.Event, 100), entered: make(chan bool)}
	locker := lock.New(redistest.Mini(t).Client(t), "test", lock.WithOpTimeout(time.Minute))
	once, interceptor := protect(locker, middleware.WithObserver(func(_ context.Context, e middleware.Event) { s.events <- e }))
	transport := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true} // but what connect asks for
	transport.Protocols.SetUnencryptedHTTP2(http2)
	transport.Protocols.SetHTTP1(!http2)
	server := httptest.NewUnstartedServer(once(connect.NewUnaryHandler("/payments.v1.Payments/Pay", s.pay, connect.WithInterceptors(interceptor))))
	server.Config.Protocols = transport.Protocols
	server.Start()
	s.http, s.url = &http.Client{Transport: transport}, server.URL+"/payments.v1.Payments/Pay"
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		_ = locker.Close(context.Background())
	})
	return s
}

// pay is the procedure. What it does depends on the amount.
func (s *service) pay(ctx context.Context, req *connect.Request[amount]) (*connect.Response[payment], error) {
	s.runs++
	switch req.Msg.Value {
	case 1:
		s.entered <- true
		<-s.entered
	case 404:
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such account"))
	case 500:
		return nil, connect.NewError(connect.CodeInternal, errors.New("charged, and not booked"))
	case 503:
		_ = middleware.FromContext(ctx).Discard()
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("try later"))
	}
	res := connect.NewResponse(wrapperspb.String(strings.Repeat("paid ", 1000))) // which is compressed
	res.Header().Set("Location", "/payments/1")
	res.Trailer().Set("Receipt", "17")
	return res, nil
}

// call calls the procedure, and returns what the client sees of the response, but for the message.
func (s *service) call(key string, value int64, more ...connect.ClientOption) string {
	client := connect.NewClient[amount, payment](s.http, s.url, append(more, s.opts...)...)
	req := connect.NewRequest(wrapperspb.Int64(value))
	if key != "" {
		req.Header().Set("Idempotency-Key", key)
	}
	req.Header().Set("Authorization", "Basic YW5uOg==") // ann
	res, err := client.CallUnary(s.Context(), req)
	if err != nil {
		return connect.CodeOf(err).String()
	}
	return strings.Join([]string{res.Msg.Value[:4], res.Header().Get("Location"), res.Trailer().Get("Receipt"), res.Header().Get("Idempotent-Replayed")}, " ")
}

func (s *service) want(what, got, want string, outcome middleware.Outcome, runs int) {
	s.Helper()
	if e := <-s.events; got != want || e.Outcome != outcome || s.runs != runs {
		s.Errorf("%s: got %s, %s, %d runs; want %s, %s, %d", what, got, e.Outcome, s.runs, want, outcome, runs)
	}
}

// A response is replayed with its header and trailers, also to a client that accepts no compression. So is an error that the
// client can rely on, also where its HTTP status is 200, and not one that was discarded. Refusals are errors of the client's
// own protocol.
func TestProtocols(t *testing.T) {
	for name, p := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, p.http2, p.opts)
			s.want("first", s.call("k1", 2), "paid /payments/1 17 ", middleware.Executed, 1)
			s.want("again", s.call("k1", 2), "paid /payments/1 17 true", middleware.Replayed, 1)
			plain := connect.WithAcceptCompression("gzip", nil, nil)
			s.want("again, plain", s.call("k1", 2, plain), "paid /payments/1 17 true", middleware.Replayed, 1)
			s.want("another amount", s.call("k1", 3), "invalid_argument", middleware.Reused, 1)
			s.want("no key", s.call("", 2), "invalid_argument", middleware.MissingKey, 1)
			s.want("an error", s.call("k2", 500), "internal", middleware.Executed, 2)
			s.want("an error again", s.call("k2", 500), "internal", middleware.Replayed, 2)
			for i := range 2 {
				s.want("discarded by the interceptor", s.call("k3", 404), "not_found", middleware.Freed, 3+2*i)
				s.want("discarded by the procedure", s.call("k4", 503), "unavailable", middleware.Freed, 4+2*i)
			}
			first := make(chan string)
			go func() { first <- s.call("k5", 1) }()
			<-s.entered
			s.want("in flight", s.call("k5", 1), "aborted", middleware.InFlight, 7)
			s.entered <- true
			s.want("the first", <-first, "paid /payments/1 17 ", middleware.Executed, 7)
		})
	}
}

// refused makes requests that connect refuses before it calls the procedure and its interceptors.
var refused = map[string]func(r *http.Request, grpc string){
	"a malformed message": func(r *http.Request, grpc string) {
		body := map[bool]string{true: "\xff", false: "\x00\x00\x00\x00\x01\xff"}[grpc == ""]
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	},
	"an unknown compression": func(r *http.Request, grpc string) {
		if grpc == "" {
			r.Header.Set("Content-Encoding", "br")
		}
		r.Header.Set("Grpc-Encoding", "br")
	},
	"a malformed timeout": func(r *http.Request, _ string) {
		r.Header.Set("Connect-Timeout-Ms", "soon")
		r.Header.Set("Grpc-Timeout", "soon")
	},
	"an unknown content type": func(r *http.Request, _ string) { r.Header.Set("Content-Type", "text/plain") },
}

// What connect refuses before it calls the procedure has had no effect: the same key can be used for what was meant.
func TestRefusedByConnect(t *testing.T) {
	for name, p := range protocols {
		s := start(t, p.http2, p.opts)
		for what, edit := range refused {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/"+p.grpc+"proto")
			r.Header.Set("Idempotency-Key", "k")
			r.Header.Set("Authorization", "Basic YW5uOg==")
			edit(r, p.grpc)
			res, err := s.http.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			s.want(name+", "+what, "", "", middleware.Freed, 0)
		}
	}
}
