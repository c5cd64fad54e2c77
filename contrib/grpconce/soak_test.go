package grpconce_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/onceguard/onceguard/contrib/grpconce"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

// provider is a service whose payments are requests to a provider, at this URL. A call names the payment, and gets its number.
type provider struct {
	grpc_health_v1.UnimplementedHealthServer
	url string
}

func (p provider) Check(_ context.Context, in *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	res, err := http.Post(p.url+"?id="+in.Service, "", nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var number grpc_health_v1.HealthCheckResponse_ServingStatus
	_, err = fmt.Fscan(res.Body, &number)
	return &grpc_health_v1.HealthCheckResponse{Status: number}, err
}

// serveProvider is the program of a server. Its arguments are the address of Redis and the URL of the provider. It prints its
// address, and serves until it is killed.
func serveProvider(args []string, _ io.Reader, out io.Writer) error {
	client := redis.NewClient(&redis.Options{Addr: args[0], ContextTimeoutEnabled: true})
	locker := lock.New(client, "payments", lock.WithTTL(time.Second), lock.WithOpTimeout(30*time.Second))
	server := grpc.NewServer(grpc.UnaryInterceptor(grpconce.Unary(once.New(locker, once.WithAtMostOnce(), once.WithWait(time.Minute)), userOf)))
	grpc_health_v1.RegisterHealthServer(server, provider{url: args[1]})
	listener, err := redistest.ListenAlone()
	if err != nil {
		return err
	}
	fmt.Fprintln(out, listener.Addr())
	return server.Serve(listener)
}

// fleet is a provider, servers in processes of their own, and what their callers know.
type fleet struct {
	t *testing.T

	mu      sync.Mutex
	conns   [2]*grpc.ClientConn
	charges map[string]int // of the provider
	answers map[string]grpc_health_v1.HealthCheckResponse_ServingStatus
	unknown int // calls whose outcome is unknown
}

func (f *fleet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.charges[r.URL.Query().Get("id")]++
	fmt.Fprint(w, len(f.charges))
}

// start starts server i, in place of one that was killed.
func (f *fleet) start(i int, args ...string) *redistest.Process {
	f.t.Helper()
	p := redistest.Run(f.t, "provider", args...)
	conn, err := grpc.NewClient("passthrough:///"+p.Line(f.t), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns[i] = conn
	return p
}

// settle makes the call, at any of the servers, until its answer is final.
func (f *fleet) settle(id string) {
	ctx := metadata.AppendToOutgoingContext(f.t.Context(), "user", "ann", "idempotency-key", "call-"+id)
	for {
		f.mu.Lock()
		client := grpc_health_v1.NewHealthClient(f.conns[rand.N(len(f.conns))])
		f.mu.Unlock()
		response, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: id})
		f.mu.Lock()
		before, answered := f.answers[id]
		switch status.Code(err) {
		case codes.OK:
			f.answers[id] = response.Status
			if answered && before != response.Status {
				f.t.Errorf("call %s has two responses: payments %v and %v", id, before, response.Status)
			}
		case codes.FailedPrecondition:
			f.unknown++
		case codes.Unavailable, codes.Aborted, codes.Canceled:
			f.mu.Unlock()
			continue
		default:
			f.t.Errorf("call %s: %v", id, err)
		}
		f.mu.Unlock()
		return
	}
}

// Two servers take calls and are killed one after the other. Each call is repeated until its answer is final, and once more
// after that. No call takes effect twice, each that has a response took effect, and its response is always the same.
//
// By default it makes 300 calls instead of 10,000: see redistest.Rounds.
func TestKilledUnderLoad(t *testing.T) {
	f := &fleet{t: t, charges: map[string]int{}, answers: map[string]grpc_health_v1.HealthCheckResponse_ServingStatus{}}
	charging := httptest.NewServer(f)
	defer charging.Close()
	args := []string{redistest.Start(t).Addr(), charging.URL}
	servers := []*redistest.Process{f.start(0, args...), f.start(1, args...)}
	calls := redistest.Rounds(300, 10000)
	ids := make(chan string)
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for id := range ids {
				f.settle(id)
				f.settle(id)
			}
		})
	}
	for i := range calls {
		ids <- strconv.Itoa(i)
		if victim := i / 50 % 2; i%50 == 25 {
			servers[victim].Kill(t)
			servers[victim] = f.start(victim, args...)
		}
	}
	close(ids)
	callers.Wait()
	for id, n := range f.charges {
		if n != 1 {
			t.Errorf("call %s took effect %d times", id, n)
		}
	}
	for id := range f.answers {
		if f.charges[id] != 1 {
			t.Errorf("call %s has a response and no effect", id)
		}
	}
	t.Logf("%d calls: %d answered, %d of unknown outcome, %d effects", calls, len(f.answers), f.unknown/2, len(f.charges))
	if len(f.answers)+f.unknown/2 != calls {
		t.Error("want an end of all calls")
	}
}
