package grpconce_test

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/onceguard/onceguard/contrib/grpconce"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/once"
)

const retryPolicy = `{"methodConfig": [{"name": [{"service": "payments.v1.Payments"}], "retryPolicy": {
	"maxAttempts": 3, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// The client makes a key for each call of the method, and gRPC's own retries send the same one.
func TestClientKeepsTheKey(t *testing.T) {
	var keys []string
	s := serve(t, redistest.Mini(t), func(ctx context.Context, _ *structpb.Struct) (*structpb.Struct, error) {
		key := metadata.ValueFromIncomingContext(ctx, "idempotency-key")
		keys = append(keys, append(key, "none")[0])
		if len(keys) < 3 {
			return nil, once.NothingHappened(status.Error(codes.Unavailable, "no connection"))
		}
		return payment(1), nil
	}, settings{client: []grpc.DialOption{
		grpc.WithUnaryInterceptor(grpconce.UnaryClient(payMethod)), grpc.WithDefaultServiceConfig(retryPolicy),
	}})
	if a := s.call(payMethod, nil); a.err != nil || a.number() != 1 {
		t.Errorf("%+v", a)
	}
	s.call(payMethod, nil)
	s.call(payMethod, nil, "idempotency-key", "mine")
	s.call(refundMethod, nil)
	if len(keys) != 6 || keys[0] == "none" || keys[0] != keys[1] || keys[1] != keys[2] || keys[2] == keys[3] ||
		!slices.Equal(keys[4:], []string{"mine", "none"}) {
		t.Errorf("the keys are %q", keys)
	}
}
