package grpconce_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/once"
)

// Which codes are results: by default five of them, and with WithAtMostOnce all. A stored status has its details and its
// metadata.
func TestCodes(t *testing.T) {
	final := map[codes.Code]bool{
		codes.InvalidArgument: true, codes.NotFound: true, codes.AlreadyExists: true, codes.FailedPrecondition: true,
		codes.OutOfRange: true,
	}
	for name, mode := range map[string][]once.Option{"default": nil, "at most once": {once.WithAtMostOnce()}} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				var code codes.Code
				s := serve(t, b, func(ctx context.Context, _ *structpb.Struct) (*structpb.Struct, error) {
					_ = grpc.SetHeader(ctx, metadata.Pairs("h", "1"))
					_ = grpc.SetTrailer(ctx, metadata.Pairs("t", "2"))
					st, err := status.New(code, "no\x00 more").WithDetails(&errdetails.DebugInfo{Detail: "d"})
					if err != nil {
						return nil, err
					}
					return nil, st.Err()
				}, settings{guard: mode})
				for code = codes.Canceled; code <= codes.Unauthenticated; code++ {
					runs, stored := s.runs.Load(), final[code] || mode != nil
					for i := range 2 {
						a := s.call(payMethod, nil, "idempotency-key", code.String())
						got := status.Convert(a.err)
						if got.Code() != code || got.Message() != "no\x00 more" || len(got.Details()) != 1 ||
							got.Details()[0].(*errdetails.DebugInfo).Detail != "d" ||
							len(a.header.Get("h")) != 1 || len(a.trailer.Get("t")) != 1 || a.replayed() != (stored && i == 1) {
							t.Errorf("%v, call %d: %+v", code, i, a)
						}
					}
					if ran := s.runs.Load() - runs; (ran == 1) != stored {
						t.Errorf("%v: %d runs", code, ran)
					}
				}
			})
		})
	}
}

// A replay has the code and the text of the first status, whatever is in it: gRPC's own form of a text that is not UTF-8, no
// details that gRPC cannot send, and a text in place of a status that is too long.
func TestStatusThatCannotBeStored(t *testing.T) {
	const tooLong = "grpconce: the status with its metadata is too long to be stored"
	detailed := func(detail *anypb.Any) error {
		return status.FromProto(&spb.Status{Code: int32(codes.NotFound), Message: "no", Details: []*anypb.Any{detail}}).Err()
	}
	for _, c := range []struct {
		name    string
		err     error
		trailer string
		want    string
	}{
		{"text", status.Error(codes.NotFound, "no card \xff"), "", "no card \uFFFD"},
		{"detail", detailed(&anypb.Any{TypeUrl: "\xff"}), "", "no"},
		{"long detail", detailed(&anypb.Any{Value: make([]byte, 800_000)}), "", tooLong},
		{"long trailer", status.Error(codes.NotFound, "no"), strings.Repeat("x", 800_000), tooLong},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, redistest.Mini(t), func(ctx context.Context, _ *structpb.Struct) (*structpb.Struct, error) {
				_ = grpc.SetTrailer(ctx, metadata.Pairs("x", c.trailer))
				return nil, c.err
			}, settings{})
			for i := range 2 {
				a := s.pay()
				if st := status.Convert(a.err); st.Code() != codes.NotFound || st.Message() != c.want || a.replayed() != (i == 1) {
					t.Errorf("call %d: %.200v, replayed %v, want %q", i, st, a.replayed(), c.want)
				}
			}
			s.wantRuns(1)
		})
	}
}

// What the handler knows counts more than the code. The mark is not in the status.
func TestMarks(t *testing.T) {
	for _, c := range []struct {
		name  string
		mode  []once.Option
		err   error
		first string // code and message
		then  string
	}{
		{"nothing happened", []once.Option{once.WithAtMostOnce()}, once.NothingHappened(status.Error(codes.Unavailable, "no")),
			"Unavailable no", "OK"},
		{"nothing happened, a final code", nil, once.NothingHappened(status.Error(codes.NotFound, "no")), "NotFound no", "OK"},
		{"final", nil, once.Final(status.Error(codes.Aborted, "declined")), "Aborted declined", "Aborted declined"},
		{"unknown, a final code", nil, once.Unknown(status.Error(codes.NotFound, "no")), "NotFound no", "Aborted a call with this idempotency key has not ended yet"},
		{"wrapped", nil, fmt.Errorf("paying: %w", status.Error(codes.NotFound, "no card")),
			"NotFound paying: rpc error: code = NotFound desc = no card", "NotFound paying: rpc error: code = NotFound desc = no card"},
		{"no status", nil, once.Final(errStop), "Unknown stop", "Unknown stop"},
		{"a deadline", nil, context.DeadlineExceeded, "DeadlineExceeded context deadline exceeded", "OK"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tries := 0
			s := serve(t, redistest.Mini(t), func(context.Context, *structpb.Struct) (*structpb.Struct, error) {
				if tries++; tries == 1 {
					return nil, c.err
				}
				return payment(2), nil
			}, settings{guard: c.mode})
			for i, want := range []string{c.first, c.then} {
				st := status.Convert(s.pay().err)
				got := st.Code().String()
				if st.Code() != codes.OK {
					got += " " + st.Message()
				}
				if got != want {
					t.Errorf("call %d: %q, want %q", i, got, want)
				}
			}
		})
	}
}

// The Event of a call whose outcome is unknown has the code and the message of the status, on one line, and not the form in
// which a status is stored, with its metadata.
//
// fault: a handler returns once.Unknown
func TestEventOfUnknown(t *testing.T) {
	for name, err := range map[string]error{
		"itself": once.Unknown(status.Error(codes.Unavailable, "no reply")),
		"deep":   fmt.Errorf("paying: %w", once.Unknown(status.Error(codes.Unavailable, "no reply"))),
	} {
		t.Run(name, func(t *testing.T) {
			events := make(chan once.Event, 1)
			observe := once.WithObserver(func(_ context.Context, e once.Event) { events <- e })
			s := serve(t, redistest.Mini(t), func(ctx context.Context, _ *structpb.Struct) (*structpb.Struct, error) {
				_ = grpc.SetTrailer(ctx, metadata.Pairs("token", "t0psecret"))
				return nil, err
			}, settings{guard: []once.Option{observe}})
			s.pay()
			e := <-events
			text := fmt.Sprint(e.Err)
			if e.Outcome != once.Unsure || !strings.HasSuffix(text, ": rpc error: code = Unavailable desc = no reply") ||
				strings.ContainsAny(text, "\n{") || strings.Contains(text, "t0psecret") {
				t.Errorf("%s, %q; want the code and the message", e.Outcome, text)
			}
		})
	}
}
