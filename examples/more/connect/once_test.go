package onceconnect

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// payments is the procedure's path.
const payments = "/payments.v1.Payments/Pay"

type procedure = func(context.Context, *connect.Request[wrapperspb.Int64Value]) (*connect.Response[wrapperspb.StringValue], error)

// routes returns the service, with once around the procedure that has an effect.
func routes(once func(http.Handler) http.Handler, interceptor connect.Interceptor, pay procedure) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(payments, once(connect.NewUnaryHandler(payments, pay, connect.WithInterceptors(interceptor))))
	return mux
}

// pay takes an amount and returns a payment's id.
func pay(_ context.Context, req *connect.Request[wrapperspb.Int64Value]) (*connect.Response[wrapperspb.StringValue], error) {
	if req.Msg.Value <= 0 {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the amount is not positive"))
	}
	return connect.NewResponse(wrapperspb.String(uuid.NewString())), nil
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	amount  = connect.Request[wrapperspb.Int64Value]
	payment = connect.Response[wrapperspb.StringValue]
)

// service is the service on a real server, and a client of one protocol.
type service struct {
	t      *testing.T
	redis  *miniredis.Miniredis
	http   *http.Client
	url    string // of the procedure
	client *connect.Client[wrapperspb.Int64Value, wrapperspb.StringValue]
	plain  *connect.Client[wrapperspb.Int64Value, wrapperspb.StringValue] // does not accept gzip
	events chan middleware.Event
	runs   atomic.Int64
}

// each runs test for each protocol, over HTTP/2 and, but for gRPC, HTTP/1.1.
func each(t *testing.T, test func(t *testing.T, start func(pay procedure) *service)) {
	t.Helper()
	for name, c := range map[string]struct {
		http2 bool
		opts  []connect.ClientOption
	}{
		"Connect":            {true, nil},
		"Connect, HTTP/1.1":  {false, nil},
		"Connect as JSON":    {true, []connect.ClientOption{connect.WithProtoJSON()}},
		"gRPC":               {true, []connect.ClientOption{connect.WithGRPC()}},
		"gRPC-Web":           {true, []connect.ClientOption{connect.WithGRPCWeb()}},
		"gRPC-Web, HTTP/1.1": {false, []connect.ClientOption{connect.WithGRPCWeb()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, func(pay procedure) *service { return start(t, pay, c.http2, c.opts) })
		})
	}
}

func start(t *testing.T, pay procedure, http2 bool, opts []connect.ClientOption) *service {
	t.Helper()
	s := &service{t: t, redis: miniredis.RunT(t), events: make(chan middleware.Event, 100)}
	redisClient := redis.NewClient(&redis.Options{Addr: s.redis.Addr(), ContextTimeoutEnabled: true})
	locker := lock.New(redisClient, "test", lock.WithOpTimeout(20*time.Second))
	once, interceptor := protect(locker, middleware.WithObserver(func(_ context.Context, e middleware.Event) { s.events <- e }))
	server := httptest.NewUnstartedServer(routes(once, interceptor, func(ctx context.Context, req *amount) (*payment, error) {
		s.runs.Add(1)
		return pay(ctx, req)
	}))
	transport := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true} // but what connect asks for
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Config.Protocols = transport.Protocols
	server.Config.Protocols.SetUnencryptedHTTP2(http2)
	server.Config.Protocols.SetHTTP1(!http2)
	server.Start()
	s.http, s.url = &http.Client{Transport: transport}, server.URL+payments
	s.client = connect.NewClient[wrapperspb.Int64Value, wrapperspb.StringValue](s.http, s.url, opts...)
	s.plain = connect.NewClient[wrapperspb.Int64Value, wrapperspb.StringValue](s.http, s.url,
		append(opts[:len(opts):len(opts)], connect.WithAcceptCompression("gzip", nil, nil))...)
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		_ = locker.Close(context.WithoutCancel(t.Context()))
		_ = redisClient.Close()
	})
	return s
}

func (s *service) pay(key string, value int64) (*payment, error) {
	return s.payBy(s.client, key, value)
}

func (s *service) payBy(client *connect.Client[wrapperspb.Int64Value, wrapperspb.StringValue], key string, value int64) (*payment, error) {
	req := connect.NewRequest(wrapperspb.Int64(value))
	if key != "" {
		req.Header().Set("Idempotency-Key", key)
	}
	req.Header().Set("Authorization", "Basic YW5uOg==") // ann
	return client.CallUnary(s.t.Context(), req)
}

// wantError checks the error of a call, and its Event.
func (s *service) wantError(err error, code connect.Code, text string, outcome middleware.Outcome) {
	s.t.Helper()
	if connect.CodeOf(err) != code || err == nil || !strings.Contains(err.Error(), text) {
		s.t.Errorf("error %v, want %v with %q", err, code, text)
	}
	if e := <-s.events; e.Outcome != outcome {
		s.t.Errorf("outcome %s (%v), want %s", e.Outcome, e.Err, outcome)
	}
}

func (s *service) wantRuns(n int64) {
	s.t.Helper()
	if got := s.runs.Load(); got != n {
		s.t.Errorf("the procedure ran %d times, want %d", got, n)
	}
}

// The message, the header and the trailers are replayed.
func TestReplay(t *testing.T) {
	each(t, func(t *testing.T, start func(procedure) *service) {
		s := start(func(ctx context.Context, req *amount) (*payment, error) {
			res, err := pay(ctx, req)
			res.Header().Set("Location", "/payments/1")
			res.Trailer().Set("Receipt", "17")
			return res, err
		})
		first, err := s.pay("k", 1250)
		if err != nil {
			t.Fatal(err)
		}
		again, err := s.pay("k", 1250)
		if err != nil {
			t.Fatal(err)
		}
		if first.Msg.Value != again.Msg.Value || first.Msg.Value == "" {
			t.Errorf("payment %q, then %q", first.Msg.Value, again.Msg.Value)
		}
		for i, res := range []*payment{first, again} {
			if res.Header().Get("Location") != "/payments/1" || res.Trailer().Get("Receipt") != "17" {
				t.Errorf("response %d: header %v, trailer %v", i+1, res.Header(), res.Trailer())
			}
			if replayed := res.Header().Get("Idempotent-Replayed") == "true"; replayed != (i == 1) {
				t.Errorf("response %d: replayed %v", i+1, replayed)
			}
		}
		s.wantRuns(1)
	})
}

// refused makes requests that connect refuses before it calls the procedure and its interceptors. grpc is from
// mediaTypes, and empty for Connect.
var refused = map[string]func(r *http.Request, grpc string){
	"a malformed message": func(r *http.Request, grpc string) {
		body := "\xff"
		if grpc != "" {
			body = "\x00\x00\x00\x00\x01\xff"
		}
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
	"an unknown codec": func(r *http.Request, _ string) {
		r.Header.Set("Content-Type", strings.Replace(r.Header.Get("Content-Type"), "proto", "cbor", 1))
	},
	"an unknown content type": func(r *http.Request, _ string) { r.Header.Set("Content-Type", "text/plain") },
}

// What connect refuses before it calls the procedure has had no effect: the same key can be used for what was meant.
func TestRefusedByConnect(t *testing.T) {
	each(t, func(t *testing.T, start func(procedure) *service) {
		for name, edit := range refused {
			t.Run(name, func(t *testing.T) {
				s := start(pay)
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				grpc := mediaTypes[strings.Split(t.Name(), "/")[1]]
				r.Header.Set("Content-Type", "application/"+grpc+"proto")
				r.Header.Set("Idempotency-Key", "k")
				r.Header.Set("Authorization", "Basic YW5uOg==")
				edit(r, grpc)
				res, err := s.http.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				if e := <-s.events; e.Outcome != middleware.Freed {
					t.Errorf("status %d, outcome %s, want freed", res.StatusCode, e.Outcome)
				}
				if _, err := s.pay("k", 1250); err != nil {
					t.Error(err)
				}
				s.wantRuns(1)
			})
		}
	})
}

// mediaTypes has the part of the media type by which a protocol is known.
var mediaTypes = map[string]string{"gRPC": "grpc+", "gRPC-Web": "grpc-web+", "gRPC-Web,_HTTP": "grpc-web+"}

// An error that the client can rely on is stored, also where its HTTP status is 200.
func TestErrorIsReplayed(t *testing.T) {
	each(t, func(t *testing.T, start func(procedure) *service) {
		s := start(func(context.Context, *amount) (*payment, error) {
			return nil, connect.NewError(connect.CodeInternal, errors.New("charged, and not booked"))
		})
		_, err := s.pay("k", 1)
		s.wantError(err, connect.CodeInternal, "charged, and not booked", middleware.Executed)
		_, err = s.pay("k", 1)
		s.wantError(err, connect.CodeInternal, "charged, and not booked", middleware.Replayed)
		s.wantRuns(1)
	})
}

// An error that was discarded is not: a retry runs.
func TestDiscard(t *testing.T) {
	each(t, func(t *testing.T, start func(procedure) *service) {
		for name, refuse := range map[string]func(context.Context) connect.Code{
			"by the interceptor": func(context.Context) connect.Code { return connect.CodeNotFound },
			"by the procedure": func(ctx context.Context) connect.Code {
				_ = middleware.FromContext(ctx).Discard()
				return connect.CodeUnavailable
			},
		} {
			t.Run(name, func(t *testing.T) {
				s := start(func(ctx context.Context, req *amount) (*payment, error) {
					if req.Msg.Value == 1 {
						return nil, connect.NewError(refuse(ctx), errors.New("try later"))
					}
					return pay(ctx, req)
				})
				for range 2 {
					_, err := s.pay("k", 1)
					if e := <-s.events; err == nil || e.Outcome != middleware.Freed {
						t.Errorf("error %v, outcome %s, want freed", err, e.Outcome)
					}
				}
				s.wantRuns(2)
			})
		}
	})
}

// Refusals are errors of the client's own protocol.
func TestProblems(t *testing.T) {
	each(t, func(t *testing.T, start func(procedure) *service) {
		entered, leave := make(chan struct{}), make(chan struct{})
		s := start(func(ctx context.Context, req *amount) (*payment, error) {
			close(entered)
			<-leave
			return pay(ctx, req)
		})
		first := make(chan error)
		go func() {
			_, err := s.pay("k", 1)
			first <- err
		}()
		<-entered
		_, err := s.pay("k", 1)
		s.wantError(err, connect.CodeAborted, "no result yet", middleware.InFlight)
		_, err = s.pay("k", 2)
		s.wantError(err, connect.CodeInvalidArgument, "already used", middleware.Reused)
		_, err = s.pay("", 1)
		s.wantError(err, connect.CodeInvalidArgument, "missing", middleware.MissingKey)
		close(leave)
		if err := <-first; err != nil {
			t.Error(err)
		}
		<-s.events
		s.redis.Close()
		_, err = s.pay("k2", 1)
		s.wantError(err, connect.CodeUnavailable, "", middleware.StoreUnavailable)
		s.wantRuns(1)
	})
}
