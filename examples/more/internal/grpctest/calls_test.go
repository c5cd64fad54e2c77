package grpctest_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceguard/onceguard/internal/redistest"
)

// Two servers take calls and are killed one after the other, and Redis, if there is one, forgets everything every 20 ms.
// Each call is repeated until its answer is final, and once more after that. With an intent journal no call takes effect
// twice, and with a transactional one each does once.
//
// By default there are 200 calls of each kind, with ONCEGUARD_LONG=1 10,000, and in CI 1,000.
//
// fault: journal: servers of gRPC killed -9 under load, FLUSHALL every 20 ms or no Redis
func TestCalls(t *testing.T) {
	all := 10_000
	if os.Getenv("CI") == "true" {
		all = 1000
	}
	calls := redistest.Rounds(200, all)
	for _, kind := range []struct {
		name        string
		alone, inTx bool
	}{
		{name: "intent"},
		{name: "alone", alone: true},
		{name: "transactional", inTx: true},
	} {
		t.Run(kind.name, func(t *testing.T) {
			f := newFleet(t)
			addr, provider := none, f.provider.URL
			if kind.inTx {
				provider = inTx
			}
			if !kind.alone {
				b := redistest.Start(t)
				addr = b.Addr()
				client := b.Client(t)
				f.background(20*time.Millisecond, func() {
					if err := client.FlushAll(context.Background()).Err(); err != nil {
						t.Errorf("FLUSHALL: %v", err)
					}
				})
			}
			database := postgreSQL(t)
			f.args = []string{addr, database.source, provider}
			db := database.open(t)
			if _, err := db.Exec("create table payments (id text)"); err != nil {
				t.Fatal(err)
			}
			kills := f.run(calls)
			if kind.inTx {
				f.paid = rows(t, db)
			}
			f.check(calls, kills, kind.inTx)
		})
	}
}

// fleet is two servers, each in a process of its own, their provider, and what the callers know.
type fleet struct {
	t        *testing.T
	args     []string // of the servers
	provider *httptest.Server
	done     chan struct{} // closed when all calls have ended
	jobs     sync.WaitGroup

	mu       sync.Mutex
	servers  [2]*server
	paid     map[string]int    // payments by the id of the call
	answered map[string]string // the number of the payment by the id of the call
	unknown  int               // calls whose outcome is unknown
	tries    int
}

type server struct {
	process *redistest.Process
	conn    *grpc.ClientConn
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, done: make(chan struct{}), paid: map[string]int{}, answered: map[string]string{}}
	f.provider = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		id := r.URL.Query().Get("id")
		f.paid[id]++
		fmt.Fprint(w, id, " ", f.paid[id])
	}))
	t.Cleanup(f.provider.Close)
	return f
}

// background calls job until all calls have ended.
func (f *fleet) background(interval time.Duration, job func()) {
	f.jobs.Go(func() {
		every := time.NewTicker(interval)
		defer every.Stop()
		for {
			select {
			case <-every.C:
				job()
			case <-f.done:
				return
			}
		}
	})
}

// start starts server i, in place of one that was killed.
func (f *fleet) start(i int) {
	f.t.Helper()
	p := redistest.Run(f.t, "payments", f.args...)
	conn, err := grpc.NewClient("passthrough:///"+p.Line(f.t), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.servers[i] = &server{p, conn}
}

// run makes the calls, kills servers meanwhile, and returns how many it has killed.
func (f *fleet) run(calls int) (kills int) {
	f.t.Helper()
	f.start(0)
	f.start(1)
	ids := make(chan string)
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			for id := range ids {
				f.settle(id)
			}
		})
	}
	go func() {
		for i := range calls {
			ids <- strconv.Itoa(i)
		}
		close(ids)
		callers.Wait()
		close(f.done)
	}()
	kills = f.kill()
	f.jobs.Wait()
	return kills
}

// rows returns how many payments are in the database, by the id of the call.
func rows(t *testing.T, db *sql.DB) map[string]int {
	t.Helper()
	paid := map[string]int{}
	all, err := db.Query("select id from payments")
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	for all.Next() {
		var id string
		if err := all.Scan(&id); err != nil {
			t.Fatal(err)
		}
		paid[id]++
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	return paid
}

// check checks what has happened: each call is paid once or, unless each has to be paid, not at all.
func (f *fleet) check(calls, kills int, each bool) {
	f.t.Helper()
	for id, n := range f.paid {
		if n > 1 {
			f.t.Errorf("call %s took effect %d times", id, n)
		}
	}
	for id, number := range f.answered {
		if number != id+" 1" {
			f.t.Errorf("call %s was answered with %q", id, number)
		}
	}
	f.t.Logf("%d calls: %d answered, %d of unknown outcome, %d effects; %d tries, %d kills",
		calls, len(f.answered), f.unknown, len(f.paid), f.tries, kills)
	if each && len(f.paid) != calls {
		f.t.Errorf("%d of %d calls took effect", len(f.paid), calls)
	}
	if len(f.answered)+f.unknown != calls || kills == 0 {
		f.t.Error("want an end of all calls, and a kill")
	}
}

// kill kills and restarts one server after the other until all calls have ended, and returns how many it has killed. It
// kills the first one at once, because few calls may take less than a tick.
func (f *fleet) kill() (kills int) {
	f.t.Helper()
	every := time.NewTicker(500 * time.Millisecond)
	defer every.Stop()
	for {
		f.servers[kills%2].process.Kill(f.t)
		f.start(kills % 2)
		kills++
		select {
		case <-every.C:
		case <-f.done:
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
			f.mu.Lock()
			f.answered[id] = number
			f.mu.Unlock()
			if again, err := f.call(id); err == nil && again != number {
				f.t.Errorf("call %s has two responses: %q and %q", id, number, again)
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

// call makes one try, at any of the servers.
func (f *fleet) call(id string) (number string, err error) {
	f.mu.Lock()
	conn := f.servers[rand.N(2)].conn
	f.tries++
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", "call-"+id)
	out := new(wrapperspb.StringValue)
	err = conn.Invoke(ctx, method, wrapperspb.String(id), out)
	return out.Value, err
}
