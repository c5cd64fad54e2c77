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
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/onceguard/onceguard/contrib/grpconce"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

// serveProvider is the program of a server whose payments are requests to a provider. Its arguments are the address of
// Redis and the URL of the provider. It prints its address, and serves until its input ends or it is killed.
func serveProvider(args []string, in io.Reader, out io.Writer) error {
	client := redis.NewClient(&redis.Options{Addr: args[0], ContextTimeoutEnabled: true})
	locker := lock.New(client, "payments", lock.WithTTL(time.Second), lock.WithOpTimeout(20*time.Second))
	guard := once.New(locker, once.WithAtMostOnce())
	pay := func(ctx context.Context, in *structpb.Struct) (*structpb.Struct, error) {
		res, err := http.Post(args[1]+"?key="+in.Fields["id"].GetStringValue(), "", nil)
		if err != nil {
			return nil, err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseInt(string(text), 10, 64)
		return payment(n), err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(grpconce.Unary(guard, userOf)))
	s := new(service)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "payments.v1.Payments", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{s.method("Pay", pay)},
	}, s)
	listener, err := redistest.ListenAlone()
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if _, err := fmt.Fprintln(out, listener.Addr()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	server.Stop()
	<-served
	return err
}

// charges counts the payments of each key.
type charges struct {
	mu    sync.Mutex
	total int
	byKey map[string]int
}

func (c *charges) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total++
	c.byKey[r.URL.Query().Get("key")]++
	fmt.Fprint(w, c.total)
}

// Two servers take calls and are killed one after the other. Each call is repeated until its answer is final, and once more
// after that. No call takes effect twice, each that has a response took effect, and its response is always the same.
//
// By default it makes 300 calls instead of 10,000: see redistest.Rounds.
func TestKilledUnderLoad(t *testing.T) {
	c := &charges{byKey: map[string]int{}}
	provider := httptest.NewServer(c)
	defer provider.Close()
	s := &fleet{t: t, redis: redistest.Start(t).Addr(), provider: provider.URL}
	for range 2 {
		s.servers = append(s.servers, nil)
		s.start(len(s.servers) - 1)
	}
	calls := redistest.Rounds(300, 10000)
	ids := make(chan string)
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for id := range ids {
				s.settle(id)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		for i := range calls {
			ids <- strconv.Itoa(i)
		}
		close(ids)
		callers.Wait()
		close(done)
	}()
	kills := s.killUntil(done)
	for id, n := range c.byKey {
		if n != 1 {
			t.Errorf("call %s took effect %d times", id, n)
		}
	}
	for id := range s.answered {
		if c.byKey[id] != 1 {
			t.Errorf("call %s has a response and no effect", id)
		}
	}
	t.Logf("%d calls: %d answered, %d of unknown outcome, %d effects; %d tries, %d kills",
		calls, len(s.answered), s.unknown, c.total, s.tries, kills)
	if len(s.answered)+s.unknown != calls || kills == 0 {
		t.Error("want an end of all calls, and a kill")
	}
}

// fleet is two servers, each in a process of its own, and what their callers know.
type fleet struct {
	t               *testing.T
	redis, provider string

	mu       sync.Mutex
	servers  []*server
	answered map[string]float64 // the number of the payment, by the id of the call
	unknown  int                // calls whose outcome is unknown
	tries    int
}

type server struct {
	process *redistest.Process
	conn    *grpc.ClientConn
}

// start starts server i, in place of one that was killed.
func (f *fleet) start(i int) {
	f.t.Helper()
	p := redistest.Run(f.t, "provider", f.redis, f.provider)
	conn, err := grpc.NewClient("passthrough:///"+p.Line(f.t), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.servers[i] = &server{p, conn}
}

// killUntil kills and restarts a server after the other until done is closed, and returns how many it has killed.
func (f *fleet) killUntil(done <-chan struct{}) (kills int) {
	f.t.Helper()
	every := time.NewTicker(200 * time.Millisecond)
	defer every.Stop()
	for {
		i := kills % len(f.servers) // the first one at once: all calls may take less than a tick
		f.servers[i].process.Kill(f.t)
		kills++
		f.start(i)
		select {
		case <-every.C:
		case <-done:
			return kills
		}
	}
}

// settle makes the call until its answer is final, and then once more.
func (f *fleet) settle(id string) {
	for deadline := time.Now().Add(2 * time.Minute); ; {
		number, err := f.call(id)
		switch status.Code(err) {
		case codes.OK:
			f.note(id, number)
			if again, err := f.call(id); err == nil && again != number {
				f.t.Errorf("call %s has two responses: payments %v and %v", id, number, again)
			}
			return
		case codes.FailedPrecondition:
			f.mu.Lock()
			defer f.mu.Unlock()
			f.unknown++
			return
		case codes.Unavailable, codes.Aborted, codes.Canceled, codes.DeadlineExceeded:
		default:
			f.t.Errorf("call %s: %v", id, err)
			return
		}
		if time.Now().After(deadline) {
			f.t.Errorf("call %s has no final answer: %v", id, err)
			return
		}
		time.Sleep(rand.N(50 * time.Millisecond)) // as a client pauses
	}
}

func (f *fleet) note(id string, number float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answered == nil {
		f.answered = map[string]float64{}
	}
	f.answered[id] = number
}

// call makes one try, at any of the servers.
func (f *fleet) call(id string) (number float64, err error) {
	f.mu.Lock()
	conn := f.servers[rand.N(len(f.servers))].conn
	f.tries++
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "user", "ann", "idempotency-key", "call-"+id)
	in := &structpb.Struct{Fields: map[string]*structpb.Value{"id": structpb.NewStringValue(id)}}
	out := new(structpb.Struct)
	err = conn.Invoke(ctx, payMethod, in, out)
	return answer{response: out}.number(), err
}
