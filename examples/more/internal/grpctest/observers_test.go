package grpctest_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/onceguard/onceguard/contrib/grpconce"
	"github.com/onceguard/onceguard/contrib/otelonce"
	"github.com/onceguard/onceguard/contrib/promonce"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
	"github.com/onceguard/onceguard/sqljournal"
)

// protected stands for a service whose method Check is protected.
type protected struct {
	grpc_health_v1.UnimplementedHealthServer
}

func (protected) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

// checkThreeTimes starts a server with these interceptors, and calls Check three times with one key: the second time it gets
// the response of the first one, and the third time it asks for something else.
func checkThreeTimes(t *testing.T, interceptors ...grpc.UnaryServerInterceptor) {
	t.Helper()
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(interceptors...))
	grpc_health_v1.RegisterHealthServer(server, protected{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///"+listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	client := grpc_health_v1.NewHealthClient(conn)
	for _, call := range []struct {
		request  string
		code     codes.Code
		replayed bool
	}{{"a", codes.OK, false}, {"a", codes.OK, true}, {"b", codes.InvalidArgument, false}} {
		var header metadata.MD
		ctx := metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", "k1")
		_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: call.request}, grpc.Header(&header))
		if got := status.Code(err); got != call.code || len(header.Get("idempotent-replayed")) == 1 != call.replayed {
			t.Errorf("%s: %v, %v, want %v, replayed %v", call.request, err, header, call.code, call.replayed)
		}
	}
	conn.Close()
	server.GracefulStop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func user(context.Context) (string, error) { return "ann", nil }

// An intent journal protects calls without Redis.
func TestCallsAlone(t *testing.T) {
	for name, open := range map[string]func(testing.TB) database{
		"postgresql": postgreSQL, "sqlite": sqlite,
	} {
		t.Run(name, func(t *testing.T) {
			d, locker := open(t), lock.None(namespace)
			journal := sqljournal.Intent(d.open(t), namespace, d.options...)
			checkThreeTimes(t, grpconce.Unary(once.New(locker, once.WithJournal(journal)), user))
			if err := locker.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The options of promonce and otelonce are all that a server needs for metrics and spans of its calls.
func TestCallsAreObserved(t *testing.T) {
	const method = grpc_health_v1.Health_Check_FullMethodName
	reg, spans := prometheus.NewPedanticRegistry(), tracetest.NewInMemoryExporter()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	locker := lock.New(redistest.Mini(t).Client(t), namespace)
	guard := once.New(locker,
		once.WithObserver(promonce.New(reg, locker).ObserveCall), otelonce.Calls(otelonce.WithTracerProvider(tracers)))
	traced := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		ctx, span := tracers.Tracer("server").Start(ctx, info.FullMethod) // as the package otelgrpc does
		defer span.End()
		return next(ctx, req)
	}
	checkThreeTimes(t, traced, grpconce.Unary(guard, user))
	if err := locker.Close(context.Background()); err != nil {
		t.Error(err)
	}

	var got []string // the span of a call follows its children
	for _, s := range spans.GetSpans() {
		name := s.Name
		for _, a := range s.Attributes {
			if a.Key == "onceguard.outcome" {
				name += " " + a.Value.AsString()
			}
		}
		got = append(got, name)
	}
	want := []string{
		"onceguard.claim", "onceguard.settle", method + " executed",
		"onceguard.claim", method + " replayed",
		"onceguard.claim", method + " reused",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the spans are %q, want %q", got, want)
	}
	const labels = `error_type="",locker="` + namespace + `",method="",outcome="%",route="` + method + `"`
	metrics := "# HELP onceguard_requests_total Requests whose method is protected, by what happened to them.\n" +
		"# TYPE onceguard_requests_total counter\n"
	for _, outcome := range []string{"executed", "replayed", "reused"} {
		metrics += "onceguard_requests_total{" + strings.Replace(labels, "%", outcome, 1) + "} 1\n"
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(metrics), "onceguard_requests_total"); err != nil {
		t.Error(err)
	}
}
