package grpconce_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/onceguard/onceguard/contrib/grpconce"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/once"
)

// A second call, to another instance, gets the response and the metadata of the first one.
func TestReplay(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		pay := numbering()
		withMetadata := func(ctx context.Context, in *structpb.Struct) (*structpb.Struct, error) {
			_ = grpc.SetHeader(ctx, metadata.Pairs("location", "/payments/1", "token-bin", "\xff\x00"))
			_ = grpc.SendHeader(ctx, metadata.Pairs("location", "/p/1"))
			_ = grpc.SetTrailer(ctx, metadata.Pairs("cost", "3"))
			return pay(ctx, in)
		}
		first, other := serve(t, b, withMetadata, settings{}), serve(t, b, withMetadata, settings{})
		for i, a := range []answer{first.pay(), first.pay(), other.pay()} {
			if a.err != nil || a.number() != 1 || a.replayed() != (i > 0) {
				t.Errorf("call %d: %+v", i, a)
			}
			header := fmt.Sprintf("%q %q", a.header.Get("location"), a.header.Get("token-bin"))
			if header != `["/payments/1" "/p/1"] ["\xff\x00"]` || !slices.Equal(a.trailer.Get("cost"), []string{"3"}) {
				t.Errorf("call %d: header %v, trailer %v", i, a.header, a.trailer)
			}
		}
		first.wantRuns(1)
		other.wantRuns(0)
		first.wantEvent(once.Executed)
		first.wantEvent(once.Replayed)
		for _, key := range b.Keys(t) {
			if raw, _ := b.Raw(t, key); strings.Contains(key+raw, "ann") || strings.Contains(key+raw, "1250") {
				t.Errorf("the user or the request is stored: %q %q", key, raw)
			}
		}
	})
}

// The method, the user, the key and the request each count.
func TestOtherCalls(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, numbering(), settings{})
		amount := map[string]any{"amount": 1250, "currency": "EUR", "lines": map[string]any{"a": 1, "b": 2, "c": 3}}
		for i, a := range []answer{
			s.call(payMethod, amount, "idempotency-key", "k1"),
			s.call(payMethod, amount, "idempotency-key", "k2"),
			s.call(refundMethod, amount, "idempotency-key", "k1"),
			s.callAs("bob", payMethod, amount, "idempotency-key", "k1"),
			s.call(payMethod, amount),
		} {
			if a.err != nil || a.number() != float64(i+1) || a.replayed() {
				t.Errorf("call %d: %+v", i, a)
			}
		}
		for range 20 { // each time with another order of the map
			if a := s.call(payMethod, amount, "idempotency-key", `"k1"`); a.err != nil || a.number() != 1 || !a.replayed() {
				t.Fatalf("%+v", a)
			}
		}
		amount["amount"] = 1251
		a := s.call(payMethod, amount, "idempotency-key", "k1")
		s.wantRefused(a, codes.InvalidArgument, "KEY_REUSED")
		for _, detail := range status.Convert(a.err).Details() {
			told := detail.(*errdetails.ErrorInfo).GetMetadata()
			ended, err := time.Parse(time.RFC3339, told["first_ended"])
			if err != nil || time.Since(ended) > time.Hour || told["first_running"] != "" || told["instance"] == "" {
				t.Errorf("metadata %v, %v", told, err)
			}
		}
		s.wantRuns(5)
	})
}

// fault: a client calls again while its first call still runs. It gets Aborted; when the first has ended, its response.
func TestInFlight(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		began, end := make(chan bool), make(chan bool)
		s := serve(t, b, func(context.Context, *structpb.Struct) (*structpb.Struct, error) {
			began <- true
			<-end
			return payment(1), nil
		}, settings{})
		waiting := serve(t, b, numbering(), settings{guard: []once.Option{once.WithWait(time.Minute)}})
		first, second := make(chan answer), make(chan answer)
		go func() { first <- s.pay() }()
		<-began
		a := s.pay()
		s.wantRefused(a, codes.Aborted, "IN_FLIGHT")
		info := status.Convert(a.err).Details()[0].(*errdetails.ErrorInfo)
		if got := info.Metadata["instance"]; !strings.HasPrefix(got, "urn:onceguard:key:") || len(got) != 18+64 {
			t.Errorf("the instance is %q", got)
		}
		go func() { second <- waiting.pay() }()
		end <- true
		if a := <-first; a.err != nil || a.replayed() {
			t.Errorf("%+v", a)
		}
		if a := <-second; a.err != nil || a.number() != 1 || !a.replayed() {
			t.Errorf("%+v", a)
		}
		s.wantRuns(1)
		waiting.wantRuns(0)
	})
}

// fault: the connection breaks while the handler runs. The handler goes on, and the retry gets its response.
func TestConnectionCut(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		began, end := make(chan bool), make(chan bool)
		s := serve(t, b, func(ctx context.Context, _ *structpb.Struct) (*structpb.Struct, error) {
			began <- true
			<-end
			return payment(1), ctx.Err()
		}, settings{})
		first := make(chan answer)
		go func() { first <- s.pay() }()
		<-began
		s.cut()
		if a := <-first; status.Code(a.err) != codes.Unavailable {
			t.Errorf("%+v", a)
		}
		s.wantRefused(s.pay(), codes.Aborted, "IN_FLIGHT")
		end <- true
		s.wantEvent(once.InFlight)
		s.wantEvent(once.Executed)
		if a := s.pay(); a.err != nil || a.number() != 1 || !a.replayed() {
			t.Errorf("%+v", a)
		}
		s.wantRuns(1)
	})
}

// fault: the handler panics. By default the retry runs when the lease is over; with WithAtMostOnce it does not run.
func TestPanic(t *testing.T) {
	for name, mode := range map[string][]once.Option{"default": nil, "at most once": {once.WithAtMostOnce()}} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				s := serve(t, b, func(context.Context, *structpb.Struct) (*structpb.Struct, error) { panic(errStop) },
					settings{guard: mode})
				if a := s.pay(); status.Code(a.err) != codes.Internal {
					t.Errorf("%+v", a)
				}
				s.wantEvent(once.Panicked)
				s.wantRefused(s.pay(), codes.Aborted, "IN_FLIGHT")
				b.Elapse(t, 10*time.Second)
				a := s.pay()
				if mode == nil {
					s.wantRuns(2)
				} else {
					s.wantRefused(a, codes.FailedPrecondition, "OUTCOME_UNKNOWN")
					s.wantRuns(1)
				}
			})
		})
	}
}

// An operator finds out what happened to a call whose outcome is unknown, and says it.
func TestResolution(t *testing.T) {
	resolutions := map[string]func() (any, error){
		"paid": func() (any, error) { return grpconce.Resolution(payment(7), nil) },
		"failed": func() (any, error) {
			return grpconce.Resolution(nil, once.Final(status.Error(codes.Aborted, "declined")))
		},
		"free": func() (any, error) {
			return grpconce.Resolution(nil, once.NothingHappened(status.Error(codes.Unknown, "")))
		},
	}
	for name, resolve := range resolutions {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				tries := 0
				s := serve(t, b, func(context.Context, *structpb.Struct) (*structpb.Struct, error) {
					if tries++; tries == 1 {
						return nil, once.Unknown(status.Error(codes.DeadlineExceeded, "no answer"))
					}
					return payment(8), nil
				}, settings{guard: []once.Option{once.WithAtMostOnce()}})
				if a := s.pay(); status.Convert(a.err).Message() != "no answer" {
					t.Errorf("%+v", a)
				}
				b.Elapse(t, 10*time.Second)
				s.wantRefused(s.pay(), codes.FailedPrecondition, "OUTCOME_UNKNOWN")
				info, err := s.locker.Inspect(t.Context(), b.Keys(t)[0])
				if err != nil {
					t.Fatal(err)
				}
				v, failed := resolve()
				if err := s.guard.Resolve(t.Context(), b.Keys(t)[0], info.Token, v, failed); err != nil {
					t.Fatal(err)
				}
				a := s.pay()
				got := fmt.Sprintln(a.number(), a.replayed(), status.Code(a.err), status.Convert(a.err).Message())
				want := map[string]string{"paid": "7 true OK \n", "failed": "0 true Aborted declined\n", "free": "8 false OK \n"}[name]
				if got != want {
					t.Errorf("%q, want %q", got, want)
				}
			})
		})
	}
}

// fault: Redis does not answer. Nothing runs.
func TestRedisAway(t *testing.T) {
	server := redistest.Start(t)
	s := serve(t, server, numbering(), settings{})
	if a := s.pay(); a.err != nil {
		t.Fatal(a.err)
	}
	server.Kill(t)
	a := s.call(payMethod, nil, "idempotency-key", "k2")
	s.wantRefused(a, codes.Unavailable, "STORE_UNAVAILABLE")
	if strings.Contains(a.err.Error(), server.Addr()) {
		t.Errorf("the status names the server: %v", a.err)
	}
	s.wantRuns(1)
	s.wantEvent(once.Executed)
	s.wantEvent(once.StoreUnavailable)
}
