package grpconce_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/onceguard/onceguard/contrib/grpconce"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

// payments stands for your service. It counts its calls.
type payments struct {
	grpc_health_v1.UnimplementedHealthServer
	calls int
}

func (p *payments) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	p.calls++
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

// currentUser stands for what your authentication has put into the context.
func currentUser(context.Context) (string, error) { return "ann", nil }

func Example() {
	store := miniredis.NewMiniRedis() // stands for your Redis
	if err := store.Start(); err != nil {
		panic(err)
	}
	defer store.Close()
	client := redis.NewClient(&redis.Options{Addr: store.Addr(), ContextTimeoutEnabled: true})
	locker := lock.New(client, "payments")
	guard := once.New(locker, once.WithAtMostOnce())

	server := grpc.NewServer(grpc.ChainUnaryInterceptor(
		grpconce.Unary(guard, currentUser, grpconce.WithMethods(grpc_health_v1.Health_Check_FullMethodName), grpconce.WithRequired()),
	))
	service := new(payments)
	grpc_health_v1.RegisterHealthServer(server, service)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() { _ = server.Serve(listener) }()

	conn, err := grpc.NewClient("passthrough:///"+listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	for range 2 { // the client loses the response, and tries again
		ctx := metadata.AppendToOutgoingContext(context.Background(), "idempotency-key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		var header metadata.MD
		response, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Header(&header))
		fmt.Println(response.GetStatus(), header.Get("idempotent-replayed"), err)
	}
	fmt.Println(service.calls, "call")

	// When the server stops: grpc.Server.GracefulStop first, then Locker.Close.
	_ = conn.Close()
	server.GracefulStop()
	if err := errors.Join(locker.Close(context.Background()), client.Close()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// SERVING [] <nil>
	// SERVING [true] <nil>
	// 1 call
}

// The client makes the keys. gRPC's own retries send the same key again.
func ExampleUnaryClient() {
	conn, err := grpc.NewClient("dns:///payments.example.com:443",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(grpconce.UnaryClient("/payments.v1.Payments/Pay")), // before what retries
		grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{"service": "payments.v1.Payments"}], "retryPolicy": {
			"maxAttempts": 4, "initialBackoff": "0.5s", "maxBackoff": "5s", "backoffMultiplier": 2,
			"retryableStatusCodes": ["UNAVAILABLE", "ABORTED"]}}]}`),
	)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(conn.Close())
	// Output: <nil>
}
