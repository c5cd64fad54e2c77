package grpconce_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/onceguard/onceguard/contrib/grpconce"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

func TestMain(m *testing.M) {
	redistest.Main(m, redistest.Program{Name: "provider", Run: serveProvider})
}

const (
	payMethod    = "/payments.v1.Payments/Pay"
	refundMethod = "/payments.v1.Payments/Refund"
	streamMethod = "/payments.v1.Payments/Stream"
)

type handler func(context.Context, *structpb.Struct) (*structpb.Struct, error)

// service is a gRPC server on loopback, protected by the interceptor, and a client of it.
type service struct {
	t      *testing.T
	locker *lock.Locker
	guard  *once.Guard
	events chan once.Event
	runs   atomic.Int64
	conn   *grpc.ClientConn

	mu    sync.Mutex
	wires []net.Conn // of the client
}

// settings are what a test changes of a service.
type settings struct {
	guard  []once.Option
	unary  []grpconce.Option
	server []grpc.UnaryServerInterceptor // between the interceptor and the handler
	client []grpc.DialOption
	user   func(context.Context) (string, error) // default: the metadata user
	stream grpc.StreamHandler                    // of a third method, streamMethod; nil: there is none
}

// serve starts a service whose two methods call pay. The end of the test stops it.
func serve(t *testing.T, b redistest.Backend, pay handler, with settings) *service {
	t.Helper()
	s := &service{t: t, events: make(chan once.Event, 100)}
	s.locker = lock.New(b.Client(t, redistest.OneTry), "payments", lock.WithOpTimeout(20*time.Second))
	s.guard = once.New(s.locker, append(with.guard, once.WithObserver(func(_ context.Context, e once.Event) { s.events <- e }))...)
	if with.user == nil {
		with.user = userOf
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(append([]grpc.UnaryServerInterceptor{
		recovery, grpconce.Unary(s.guard, with.user, with.unary...),
	}, with.server...)...))
	desc := &grpc.ServiceDesc{
		ServiceName: "payments.v1.Payments", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{s.method("Pay", pay), s.method("Refund", pay)},
	}
	if with.stream != nil {
		desc.Streams = []grpc.StreamDesc{{StreamName: "Stream", Handler: with.stream, ServerStreams: true, ClientStreams: true}}
	}
	server.RegisterService(desc, s)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	options := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(s.dial),
	}, with.client...)
	if s.conn, err = grpc.NewClient("passthrough:///"+listener.Addr().String(), options...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.conn.Close()
		server.Stop()
		<-served
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = s.locker.Close(ctx) // fails if the test has stopped Redis
	})
	return s
}

// userOf is an authentication that believes everything.
func userOf(ctx context.Context) (string, error) {
	if users := metadata.ValueFromIncomingContext(ctx, "user"); len(users) == 1 {
		return users[0], nil
	}
	return "", nil
}

// recovery turns a panic into a status, as an interceptor of a real service does.
func recovery(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Error(codes.Internal, "panic")
		}
	}()
	return next(ctx, req)
}

// method is what protoc-gen-go-grpc makes.
func (s *service) method(name string, h handler) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(
		_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
	) (any, error) {
		in := new(structpb.Struct)
		if err := decode(in); err != nil {
			return nil, err
		}
		info := &grpc.UnaryServerInfo{Server: s, FullMethod: "/payments.v1.Payments/" + name}
		return interceptor(ctx, in, info, func(ctx context.Context, req any) (any, error) {
			s.runs.Add(1)
			return h(ctx, req.(*structpb.Struct))
		})
	}}
}

func (s *service) dial(ctx context.Context, addr string) (net.Conn, error) {
	wire, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wires = append(s.wires, wire)
	return wire, err
}

// cut closes all connections of the client.
func (s *service) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, wire := range s.wires {
		wire.Close()
	}
}

// answer is what a call gets.
type answer struct {
	response        *structpb.Struct
	header, trailer metadata.MD
	err             error
}

func (a answer) replayed() bool { return len(a.header.Get("idempotent-replayed")) == 1 }

// reason returns that of the ErrorInfo, and whether there is a RetryInfo with a delay.
func (a answer) reason() (reason string, retry bool) {
	for _, detail := range status.Convert(a.err).Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if d.Domain == "onceguard" {
				reason = d.Reason
			}
		case *errdetails.RetryInfo:
			retry = d.RetryDelay.AsDuration() >= time.Second
		}
	}
	return reason, retry
}

// call makes a call of ann's with these pairs of metadata beside.
func (s *service) call(method string, in map[string]any, pairs ...string) (a answer) {
	return s.callAs("ann", method, in, pairs...)
}

func (s *service) callAs(user, method string, in map[string]any, pairs ...string) (a answer) {
	request, err := structpb.NewStruct(in)
	if err != nil {
		return answer{err: err}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ctx = metadata.NewOutgoingContext(ctx, metadata.Pairs(append(pairs, "user", user)...))
	a.response = new(structpb.Struct)
	a.err = s.conn.Invoke(ctx, method, request, a.response, grpc.Header(&a.header), grpc.Trailer(&a.trailer))
	return a
}

// pay makes the same call each time, with the key k1.
func (s *service) pay() answer {
	return s.call(payMethod, map[string]any{"amount": 1250}, "idempotency-key", "k1")
}

func (s *service) wantRuns(n int64) {
	s.t.Helper()
	if got := s.runs.Load(); got != n {
		s.t.Errorf("%d runs, want %d", got, n)
	}
}

func (s *service) wantEvent(want once.Outcome) {
	s.t.Helper()
	if e := <-s.events; e.Outcome != want || e.Operation != payMethod {
		s.t.Errorf("the event is %+v, want the outcome %s", e, want)
	}
}

// wantRefused checks the status of a call that was refused.
func (s *service) wantRefused(a answer, code codes.Code, want string) {
	s.t.Helper()
	reason, retry := a.reason()
	if got := status.Code(a.err); got != code || reason != want || a.replayed() {
		s.t.Errorf("%v, reason %q, want %v, %q", a.err, reason, code, want)
	}
	if wantRetry := code == codes.Aborted || code == codes.Unavailable; retry != wantRetry {
		s.t.Errorf("%v: RetryInfo: %v, want %v", a.err, retry, wantRetry)
	}
}

// number returns the number of the payment, 0 if there is none.
func (a answer) number() float64 { return a.response.GetFields()["payment"].GetNumberValue() }

// numbering is a handler whose payments are 1, 2, 3.
func numbering() handler {
	var payments atomic.Int64
	return func(context.Context, *structpb.Struct) (*structpb.Struct, error) {
		return payment(payments.Add(1)), nil
	}
}

func payment(n int64) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{"payment": structpb.NewNumberValue(float64(n))}}
}

var errStop = errors.New("stop")
