package grpconce

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/onceguard/onceguard/onceclient"
)

// UnaryClient returns an interceptor for clients that gives a key to each call of the methods with these full names,
// such as "/payments.v1.Payments/Pay". A retry inside of it sends the same key again, whether by the retry policy of a
// service config or by an interceptor that comes after it in grpc.WithChainUnaryInterceptor. So put it first. The keys
// are those of [onceclient.NewKey].
//
// Retry Unavailable and Aborted. With other retries, such as a loop around the call, each try would get a new key. For
// those make the key yourself, and store it with the order that it is for. The interceptor leaves a key that it finds:
//
//	ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", order.ID)
//
// UnaryClient panics if there is no method. The interceptor may be called concurrently.
func UnaryClient(fullMethods ...string) grpc.UnaryClientInterceptor {
	if len(fullMethods) == 0 {
		panic("grpconce.UnaryClient: there is no method")
	}
	return func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if sent, _ := metadata.FromOutgoingContext(ctx); slices.Contains(fullMethods, method) && len(sent.Get(keyName)) == 0 {
			ctx = metadata.AppendToOutgoingContext(ctx, keyName, onceclient.NewKey())
		}
		return invoker(ctx, method, req, reply, cc, opts...)
	}
}
