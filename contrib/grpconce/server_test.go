package grpconce_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/onceguard/onceguard/contrib/grpconce"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

func TestMain(m *testing.M) {
	redistest.Main(m, redistest.Program{Name: "provider", Run: serveProvider})
}

const payMethod = "/payments.v1.Payments/Pay"

// handler is what the interceptor protects. It gets the number of its run.
type handler func(ctx context.Context, run int) (any, error)

// door is the interceptor on a Redis of its own.
type door struct {
	t       *testing.T
	backend redistest.Backend
	locker  *lock.Locker
	guard   *once.Guard
	unary   grpc.UnaryServerInterceptor
	pay     handler
	runs    int
	events  []once.Event
}

func newDoor(t *testing.T, pay handler, opts ...once.Option) *door {
	t.Helper()
	d := &door{t: t, backend: redistest.Mini(t), pay: pay}
	d.locker = lock.New(d.backend.Client(t), "payments", lock.WithOpTimeout(30*time.Second))
	t.Cleanup(func() { _ = d.locker.Close(context.WithoutCancel(t.Context())) })
	observe := once.WithObserver(func(_ context.Context, e once.Event) { d.events = append(d.events, e) })
	d.guard = once.New(d.locker, append(opts, observe)...)
	d.unary = grpconce.Unary(d.guard, userOf, grpconce.WithRequired())
	return d
}

// userOf is an authentication that believes everything.
func userOf(ctx context.Context) (string, error) {
	return strings.Join(metadata.ValueFromIncomingContext(ctx, "user"), ""), nil
}

// call is what a client sends, and of what it gets the metadata.
type call struct {
	grpc.ServerTransportStream
	method, user    string
	keys            []string
	in              any
	header, trailer metadata.MD
}

func (c *call) SetHeader(md metadata.MD) error {
	c.header = metadata.Join(c.header, md)
	return nil
}

func (c *call) SetTrailer(md metadata.MD) error {
	c.trailer = metadata.Join(c.trailer, md)
	return nil
}

// newCall is the same call each time.
func newCall() *call {
	lines, _ := structpb.NewStruct(map[string]any{"amount": 1250, "lines": map[string]any{"a": 1, "b": 2, "c": 3}})
	return &call{method: payMethod, user: "ann", keys: []string{"k1"}, in: lines}
}

// serve makes the call as grpc-go does.
func (d *door) serve(c *call) (any, error) {
	ctx := metadata.NewIncomingContext(d.t.Context(), metadata.MD{"idempotency-key": c.keys, "user": {c.user}})
	ctx, cancel := context.WithCancel(grpc.NewContextWithServerTransportStream(ctx, c))
	defer cancel()
	info := &grpc.UnaryServerInfo{FullMethod: c.method}
	return d.unary(ctx, c.in, info, func(ctx context.Context, _ any) (any, error) {
		d.runs++
		if cancel(); ctx.Err() != nil && once.FromContext(ctx).Key() != "" {
			d.t.Error("the handler's context ends when the client leaves")
		}
		return d.pay(ctx, d.runs)
	})
}

// tell makes the call, and returns the response or the status: its code and reason, or its text.
func (d *door) tell(c *call) (text string) {
	response, err := d.serve(c)
	if payment, ok := response.(*structpb.Value); ok {
		text = payment.GetStringValue()
	}
	if st := status.Convert(err); err != nil {
		text = st.Code().String() + " " + st.Message()
		for _, detail := range st.Details() {
			switch detail := detail.(type) {
			case *errdetails.ErrorInfo:
				text = st.Code().String() + " " + detail.Reason
			case *errdetails.RetryInfo:
				text += ", retry"
			}
		}
	}
	if len(c.header.Get("idempotent-replayed")) > 0 {
		text += ", replayed"
	}
	return text
}

// wants fails if the call gets something else, one time after the other.
func (d *door) wants(c *call, want ...string) {
	d.t.Helper()
	for i, want := range want {
		c.header, c.trailer = nil, nil
		if got := d.tell(c); got != want {
			d.t.Errorf("call %d: %.200q, want %.200q", i, got, want)
		}
	}
}

// paid is a handler.
func paid(_ context.Context, run int) (any, error) {
	return structpb.NewStringValue(fmt.Sprint("paid ", run)), nil
}

var atMostOnce = []once.Option{once.WithAtMostOnce()}

// What the client gets, and its retry, by what the handler has returned in its first run.
func TestAnswers(t *testing.T) {
	const tooLong = "NotFound grpconce: the status with its metadata is too long to be stored"
	no := func(code codes.Code) error { return status.Error(code, "no") }
	detailed := func(detail *anypb.Any) error {
		return status.FromProto(&spb.Status{Code: int32(codes.NotFound), Message: "no", Details: []*anypb.Any{detail}}).Err()
	}
	type row struct {
		mode        []once.Option
		response    any
		err         error
		first, then string
	}
	rows := map[string]row{
		"nothing happened":               {atMostOnce, nil, once.NothingHappened(no(codes.Unavailable)), "Unavailable no", "paid 2"},
		"nothing happened, a final code": {nil, nil, once.NothingHappened(no(codes.NotFound)), "NotFound no", "paid 2"},
		"final":                          {nil, nil, once.Final(no(codes.Aborted)), "Aborted no", "Aborted no, replayed"},
		"unknown, a final code": {nil, nil, once.Unknown(no(codes.NotFound)),
			"NotFound no", "Aborted IN_FLIGHT, retry"},
		"wrapped": {nil, nil, fmt.Errorf("paying: %w", no(codes.NotFound)),
			"NotFound paying: rpc error: code = NotFound desc = no",
			"NotFound paying: rpc error: code = NotFound desc = no, replayed"},
		"no status":  {nil, nil, once.Final(errors.New("stop")), "Unknown stop", "Unknown stop, replayed"},
		"a deadline": {nil, nil, context.DeadlineExceeded, "DeadlineExceeded context deadline exceeded", "paid 2"},
		// As gRPC sends it: no bytes that are not UTF-8, and no details that it cannot send.
		"text": {nil, nil, status.Error(codes.NotFound, "no \xff"),
			"NotFound no \uFFFD", "NotFound no \uFFFD, replayed"},
		"detail": {nil, nil, detailed(&anypb.Any{TypeUrl: "\xff"}),
			"NotFound no", "NotFound no, replayed"},
		"long detail": {nil, nil, detailed(&anypb.Any{Value: make([]byte, 800_000)}),
			tooLong, tooLong + ", replayed"},
		"long": {nil, structpb.NewStringValue(strings.Repeat("x", 1<<20)), nil,
			strings.Repeat("x", 1<<20), "FailedPrecondition RESPONSE_NOT_STORED"},
		"not UTF-8": {nil, structpb.NewStringValue("\xff"), nil,
			"Internal grpconce: the response cannot be encoded: string field contains invalid UTF-8",
			"Internal grpconce: the response cannot be encoded: string field contains invalid UTF-8, replayed"},
		"nil": {nil, nil, nil,
			"Internal grpconce: the response cannot be encoded: <nil> is no protobuf message, or nil",
			"Internal grpconce: the response cannot be encoded: <nil> is no protobuf message, or nil, replayed"},
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		first := code.String() + " no"
		rows[code.String()+", at most once"] = row{atMostOnce, nil, no(code), first, first + ", replayed"}
		then := "paid 2"
		switch code {
		case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange:
			then = first + ", replayed"
		}
		rows[code.String()] = row{nil, nil, no(code), first, then}
	}
	for name, c := range rows {
		t.Run(name, func(t *testing.T) {
			d := newDoor(t, func(ctx context.Context, run int) (any, error) {
				if run > 1 {
					return paid(ctx, run)
				}
				return c.response, c.err
			}, c.mode...)
			d.wants(newCall(), c.first, c.then)
		})
	}
}

// A retry gets the metadata and the details of the first call. The user and the request are not stored.
func TestReplay(t *testing.T) {
	for name, failed := range map[string]bool{"a response": false, "a status": true} {
		d := newDoor(t, func(ctx context.Context, run int) (any, error) {
			_ = grpc.SetHeader(ctx, metadata.Pairs("location", "/payments/1", "token-bin", "\xff\x00"))
			_ = grpc.SendHeader(ctx, metadata.Pairs("location", "/p/1"))
			_ = grpc.SetTrailer(ctx, metadata.Pairs("cost", "3"))
			st, _ := status.New(codes.NotFound, "no").WithDetails(&errdetails.DebugInfo{Detail: "d"})
			if failed {
				return nil, st.Err()
			}
			return paid(ctx, run)
		})
		for i := range 2 {
			c := newCall()
			_, err := d.serve(c)
			replayed := len(c.header.Get("idempotent-replayed")) == 1
			got := fmt.Sprintf("%q %q %q", c.header.Get("location"), c.header.Get("token-bin"), c.trailer)
			if got != `["/payments/1" "/p/1"] ["\xff\x00"] map["cost":["3"]]` || replayed != (i > 0) {
				t.Errorf("%s, call %d: %s, replayed %t", name, i, got, replayed)
			}
			if details := status.Convert(err).Details(); (len(details) == 1) != failed {
				t.Errorf("%s, call %d: the details %v", name, i, details)
			}
		}
		for _, key := range d.backend.Keys(t) {
			if raw, _ := d.backend.Raw(t, key); strings.Contains(key+raw, "ann") || strings.Contains(key+raw, "amount") {
				t.Errorf("the user or the request is stored: %q %q", key, raw)
			}
		}
	}
}

// The method, the user, the key and the request each count. A message with a map has another encoding each time.
func TestOtherCalls(t *testing.T) {
	d := newDoor(t, paid)
	d.wants(newCall(), "paid 1")
	for range 20 {
		same := newCall()
		same.keys = []string{`"k1"`}
		d.wants(same, "paid 1, replayed")
	}
	for i, change := range []func(*call){
		func(c *call) { c.keys = []string{"k2"} },
		func(c *call) { c.user = "bob" },
		func(c *call) { c.method = "/payments.v1.Payments/Refund" },
	} {
		c := newCall()
		change(c)
		d.wants(c, fmt.Sprint("paid ", i+2))
	}
	c := newCall()
	c.in = structpb.NewStringValue("another")
	d.wants(c, "InvalidArgument KEY_REUSED")
	_, err := d.serve(c)
	told := status.Convert(err).Details()[0].(*errdetails.ErrorInfo).Metadata
	if ended, err := time.Parse(time.RFC3339, told["first_ended"]); err != nil || time.Since(ended) > time.Hour {
		t.Errorf("the first call ended at %v, %v", ended, err)
	}
	if len(told["instance"]) != len("urn:onceguard:key:")+64 || told["first_running"] != "" {
		t.Errorf("the metadata is %q", told)
	}
}

// What is refused before it runs. A call without a key never asks who the user is, and one of another method passes.
func TestRefused(t *testing.T) {
	user := func(id string, err error) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return id, err }
	}
	never := func(context.Context) (string, error) {
		t.Error("the user is asked for")
		return "", nil
	}
	for _, c := range []struct {
		user func(context.Context) (string, error)
		keys []string
		in   any
		want string
	}{
		{never, nil, nil, "InvalidArgument KEY_MISSING"},
		{never, []string{""}, nil, "InvalidArgument KEY_INVALID"},
		{never, []string{strings.Repeat("k", 256)}, nil, "InvalidArgument KEY_INVALID"},
		{never, []string{"k1", "k2"}, nil, "InvalidArgument KEY_INVALID"},
		{user("", nil), []string{"k1"}, nil, "Unauthenticated USER_UNKNOWN"},
		{user("ann", errors.New("no session")), []string{"k1"}, nil, "Unauthenticated USER_UNKNOWN"},
		{user("", status.Error(codes.PermissionDenied, "no")), []string{"k1"}, nil, "PermissionDenied no"},
		{user("ann", nil), []string{"k1"}, "text", "Internal REQUEST_UNREADABLE"},
		{user("ann", nil), []string{"k1"}, structpb.NewStringValue("\xff"), "Internal REQUEST_UNREADABLE"},
	} {
		d := newDoor(t, paid)
		d.unary = grpconce.Unary(d.guard, c.user, grpconce.WithRequired(), grpconce.WithMethods(payMethod))
		refused := newCall()
		refused.keys, refused.in = c.keys, c.in
		if d.wants(refused, c.want); d.runs != 0 || len(d.backend.Keys(t)) != 0 {
			t.Errorf("%s: %d runs, %q in Redis", c.want, d.runs, d.backend.Keys(t))
		}
		refused.method = "/payments.v1.Payments/Get"
		d.wants(refused, "paid 1", "paid 2")
	}
	d := newDoor(t, paid)
	_ = d.locker.Close(t.Context())
	d.wants(newCall(), "Unavailable STORE_UNAVAILABLE, retry")
}

// A duplicate of a call that runs, and of one that has panicked.
func TestWhileItRuns(t *testing.T) {
	var d *door
	d = newDoor(t, func(context.Context, int) (any, error) {
		d.wants(newCall(), "Aborted IN_FLIGHT, retry")
		c := newCall()
		c.in = structpb.NewBoolValue(true)
		_, err := d.serve(c)
		if told := status.Convert(err).Details()[0].(*errdetails.ErrorInfo).Metadata; told["first_running"] != "true" {
			t.Errorf("the metadata is %q", told)
		}
		panic("no")
	}, atMostOnce...)
	func() {
		defer func() { _ = recover() }()
		_, err := d.serve(newCall())
		t.Errorf("no panic, but %v", err)
	}()
	d.backend.Elapse(t, 10*time.Second)
	d.wants(newCall(), "FailedPrecondition OUTCOME_UNKNOWN")
}

// The Event of a call whose outcome is unknown has the status and not its stored form. An operator finds out what happened,
// and says it.
func TestResolution(t *testing.T) {
	for want, resolved := range map[string]error{
		"resolved, replayed":         nil,
		"Aborted declined, replayed": once.Final(status.Error(codes.Aborted, "declined")),
		"paid 2":                     once.NothingHappened(status.Error(codes.Unknown, "")),
	} {
		d := newDoor(t, func(ctx context.Context, run int) (any, error) {
			if run > 1 {
				return paid(ctx, run)
			}
			_ = grpc.SetTrailer(ctx, metadata.Pairs("token", "t0psecret"))
			return nil, fmt.Errorf("paying: %w", once.Unknown(status.Error(codes.DeadlineExceeded, "no answer")))
		}, atMostOnce...)
		_, _ = d.serve(newCall())
		if e := d.events[0]; e.Outcome != "unknown" ||
			!strings.HasSuffix(e.Err.Error(), ": rpc error: code = DeadlineExceeded desc = no answer") {
			t.Errorf("%s: %v", e.Outcome, e.Err)
		}
		d.backend.Elapse(t, 10*time.Second)
		d.wants(newCall(), "FailedPrecondition OUTCOME_UNKNOWN")
		key := d.backend.Keys(t)[0]
		info, err := d.locker.Inspect(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		v, failed := grpconce.Resolution(structpb.NewStringValue("resolved"), resolved)
		if err := d.guard.Resolve(t.Context(), key, info.Token, v, failed); err != nil {
			t.Fatal(err)
		}
		d.wants(newCall(), want)
	}
}

// What stands under the key of a call and is none: it is never a run.
func TestUnreadable(t *testing.T) {
	for _, c := range []struct {
		v    any
		err  error
		want string
	}{
		{"text", nil, "Internal RECORD_UNREADABLE"},
		{map[string]string{"Type": "no.such.Message"}, nil, "Internal RECORD_UNREADABLE"},
		{map[string]string{}, nil, "Unknown grpconce: the stored status cannot be read, replayed"},
		{nil, once.Final(errors.New("\xffplain")), "Unknown grpconce: the stored status cannot be read, replayed"},
	} {
		d := newDoor(t, paid)
		key := once.Key{Operation: payMethod, Scope: "ann", ID: "k1"}
		_, _, _ = once.Do(t.Context(), d.guard, key, func(context.Context) (any, error) { return c.v, c.err })
		if d.wants(newCall(), c.want); d.runs != 0 {
			t.Errorf("%d runs", d.runs)
		}
	}
}

// The client makes a key for each call of the method, and leaves one that it finds. gRPC's own retries are below it.
func TestClientKeepsTheKey(t *testing.T) {
	client := grpconce.UnaryClient(payMethod)
	key := func(ctx context.Context, method string) (key string) {
		_ = client(ctx, method, nil, nil, nil, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			sent, _ := metadata.FromOutgoingContext(ctx)
			key = strings.Join(sent.Get("idempotency-key"), ",")
			return nil
		})
		return key
	}
	one, two := key(t.Context(), payMethod), key(t.Context(), payMethod)
	mine := key(metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", "mine"), payMethod)
	if other := key(t.Context(), "/other"); one == "" || one == two || mine != "mine" || other != "" {
		t.Errorf("the keys are %q, %q, %q and %q", one, two, mine, other)
	}
}
