package grpconce_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/onceguard/onceguard/contrib/grpconce"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

// A bad key gets a status with details, and nothing runs. A call without a key never asks who the user is.
func TestBadKeys(t *testing.T) {
	for _, c := range []struct {
		name   string
		user   func(context.Context) (string, error)
		keys   []string
		code   codes.Code
		reason string
	}{
		{"none", nil, nil, codes.InvalidArgument, "KEY_MISSING"},
		{"empty", nil, []string{""}, codes.InvalidArgument, "KEY_INVALID"},
		{"long", nil, []string{strings.Repeat("k", 256)}, codes.InvalidArgument, "KEY_INVALID"},
		{"malformed", nil, []string{`"k`}, codes.InvalidArgument, "KEY_INVALID"},
		{"two", nil, []string{"k1", "k2"}, codes.InvalidArgument, "KEY_INVALID"},
		{"no user", func(context.Context) (string, error) { return "", nil }, []string{"k1"}, codes.Unauthenticated, "USER_UNKNOWN"},
		{"no session", func(context.Context) (string, error) { return "ann", errStop }, []string{"k1"}, codes.Unauthenticated, "USER_UNKNOWN"},
		{"a status", func(context.Context) (string, error) { return "", status.Error(codes.PermissionDenied, "no") }, []string{"k1"}, codes.PermissionDenied, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := redistest.Mini(t)
			asked := false
			s := serve(t, b, numbering(), settings{
				unary: []grpconce.Option{grpconce.WithRequired(), grpconce.WithMethods(payMethod)},
				user: func(ctx context.Context) (string, error) {
					asked = true
					return c.user(ctx)
				},
			})
			var pairs []string
			for _, key := range c.keys {
				pairs = append(pairs, "idempotency-key", key)
			}
			s.wantRefused(s.call(payMethod, nil, pairs...), c.code, c.reason)
			s.wantRuns(0)
			if n := len(b.Keys(t)); n != 0 || asked != (c.user != nil) {
				t.Errorf("%d keys in Redis; the user was asked: %v", n, asked)
			}
			if a := s.call(refundMethod, nil, pairs...); a.err != nil || a.replayed() { // not among the methods
				t.Errorf("%+v", a)
			}
		})
	}
}

// A response that cannot be stored or sent: the key is not freed.
func TestResponseThatCannotBeStored(t *testing.T) {
	long := &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewStringValue(strings.Repeat("x", 1<<20))}}
	notUTF8 := &structpb.Struct{Fields: map[string]*structpb.Value{"\xff": structpb.NewNullValue()}}
	for _, c := range []struct {
		name     string
		response *structpb.Struct
		first    codes.Code
		second   codes.Code
		reason   string
	}{
		{"long", long, codes.OK, codes.FailedPrecondition, "RESPONSE_NOT_STORED"},
		{"not UTF-8", notUTF8, codes.Internal, codes.Internal, ""},
		{"nil", nil, codes.Internal, codes.Internal, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, redistest.Mini(t), func(context.Context, *structpb.Struct) (*structpb.Struct, error) {
				return c.response, nil
			}, settings{})
			if a := s.pay(); status.Code(a.err) != c.first {
				t.Errorf("%v, want %v", a.err, c.first)
			}
			a := s.pay()
			if reason, _ := a.reason(); status.Code(a.err) != c.second || reason != c.reason {
				t.Errorf("%v, want %v %s", a.err, c.second, c.reason)
			}
			s.wantRuns(1)
		})
	}
}

// What stands under the key of a call and is none: it is never a run.
func TestUnreadable(t *testing.T) {
	b := redistest.Mini(t)
	s := serve(t, b, numbering(), settings{})
	other := once.New(lock.New(b.Client(t), "payments", lock.WithOpTimeout(20*time.Second)))
	for i, f := range []func(context.Context) (any, error){
		func(context.Context) (any, error) { return "text", nil },
		func(context.Context) (any, error) { return map[string]string{"Type": "no.such.Message"}, nil },
		func(context.Context) (any, error) { return map[string]string{}, nil },
		func(context.Context) (any, error) { return nil, once.Final(errors.New("\xffplain")) },
	} {
		id := fmt.Sprint("k", i)
		if _, _, err := once.Do(t.Context(), other, once.Key{Operation: payMethod, Scope: "ann", ID: id}, f); i < 3 && err != nil {
			t.Fatal(err)
		}
		a := s.call(payMethod, nil, "idempotency-key", id)
		if code := status.Code(a.err); code != codes.Internal && code != codes.Unknown {
			t.Errorf("%d: %+v", i, a)
		}
	}
	s.wantRuns(0)
}
