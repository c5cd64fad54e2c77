// Package grpctest tests calls of grpc-go under a journal. It is here so that users of sqljournal and of contrib/grpconce do not
// download what it needs.
package grpctest

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceguard/onceguard/contrib/grpconce"
	"github.com/onceguard/onceguard/internal/pgtest"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
	"github.com/onceguard/onceguard/sqljournal"
)

func TestMain(m *testing.M) {
	redistest.Main(m, redistest.Program{Name: "payments", Run: serve})
}

const method = "/payments.v1.Payments/Pay"

// serve is the program of a server. Its arguments are the kind, which is the namespace too, the address of Redis, and the URLs of
// the database and the provider. It prints its address, and serves until it is killed.
func serve(args []string, _ io.Reader, out io.Writer) error {
	kind, addr := args[0], args[1]
	db, err := sql.Open("pgx", args[2])
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(16)
	locker, limit := lock.None(kind), once.WithMaxDuration(2*time.Second)
	if kind != "alone" {
		locker = lock.New(redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}), kind, lock.WithTTL(time.Second))
	}
	options, pay := []once.Option{limit}, payAt(args[3])
	if kind == "transactional" {
		pay = payInTx(once.New(locker, limit, once.WithJournal(sqljournal.Transactional(db, kind))))
	} else {
		options = append(options, once.WithJournal(sqljournal.Intent(db, kind)))
	}
	guard := once.New(locker, options...)
	server := grpc.NewServer(grpc.UnaryInterceptor(grpconce.Unary(guard, func(context.Context) (string, error) { return "ann", nil })))
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "payments.v1.Payments", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Pay",
		Handler: func(_ any, ctx context.Context, decode func(any) error, unary grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.StringValue)
			if err := decode(in); err != nil {
				return nil, err
			}
			return unary(ctx, in, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, req any) (any, error) {
				number, err := pay(ctx, req.(*wrapperspb.StringValue).Value)
				return wrapperspb.String(number), err
			})
		},
	}}}, nil)
	listener, err := redistest.ListenAlone()
	if err != nil {
		return err
	}
	fmt.Fprintln(out, listener.Addr())
	return server.Serve(listener)
}

// payment is a handler, which returns the number of the payment.
type payment = func(ctx context.Context, id string) (string, error)

// payAt returns a handler that gets the number of the payment from a provider.
func payAt(provider string) payment {
	return func(_ context.Context, id string) (string, error) {
		res, err := http.Post(provider+"?id="+id, "", nil)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		number, err := io.ReadAll(res.Body)
		return string(number), err
	}
}

// payInTx returns a handler whose payment is a row, as the package comment of grpconce recommends it.
func payInTx(guard *once.Guard) payment {
	return func(ctx context.Context, id string) (string, error) {
		key := once.Key{Operation: "pay", Scope: once.Anyone, ID: once.FromContext(ctx).Key()}
		number, _, err := sqljournal.Do(ctx, guard, key, nil, func(ctx context.Context, tx *sql.Tx) (string, error) {
			var n int
			if _, err := tx.ExecContext(ctx, "insert into payments (id) values ($1)", id); err != nil {
				return "", err
			}
			err := tx.QueryRowContext(ctx, "select count(*) from payments where id = $1", id).Scan(&n)
			return fmt.Sprint(id, " ", n), err
		})
		if err != nil { // nothing has happened, or it did in another run: a retry finds out
			err = status.Error(codes.Unavailable, err.Error())
		}
		return number, err
	}
}

// fleet is two servers, each in a process of its own, and what the callers know.
type fleet struct {
	*testing.T
	args []string // of the servers

	mu      sync.Mutex
	conns   [2]*grpc.ClientConn
	paid    map[string]int // payments by the id of the call
	unknown int            // calls whose outcome is unknown
}

// start starts server i.
func (f *fleet) start(i int) *redistest.Process {
	f.Helper()
	p := redistest.Run(f, "payments", f.args...)
	conn, err := grpc.NewClient("passthrough:///"+p.Line(f), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { conn.Close() })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns[i] = conn
	return p
}

// call makes one try, at any of the servers.
func (f *fleet) call(id string) (number string, err error) {
	f.mu.Lock()
	conn := f.conns[rand.N(2)]
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", "call-"+id)
	out := new(wrapperspb.StringValue)
	err = conn.Invoke(ctx, method, wrapperspb.String(id), out)
	return out.Value, err
}

// settle makes the call until its answer is final, and then once more.
func (f *fleet) settle(id string) {
	for ; ; time.Sleep(rand.N(50 * time.Millisecond)) { // as a client pauses; until go test's own timeout
		number, err := f.call(id)
		switch status.Code(err) {
		case codes.Unavailable, codes.Aborted, codes.Canceled, codes.DeadlineExceeded:
			continue
		case codes.OK:
			if again, err := f.call(id); number != id+" 1" || err == nil && again != number {
				f.Errorf("call %s has the responses %q and %q", id, number, again)
			}
		case codes.FailedPrecondition:
		default:
			f.Errorf("call %s: %v", id, err)
		}
		if err != nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.unknown++
		}
		return
	}
}

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
	if _, err := pgtest.Find(); err != nil && os.Getenv("CI") != "true" {
		t.Skipf("left out: %v", err)
	}
	postgres, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer postgres.Close()
	source := postgres.URL(postgres.Addr(), "public")
	db, err := sql.Open("pgx", source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(sqljournal.Schema(sqljournal.DialectPostgreSQL) + "; create table payments (id text)"); err != nil {
		t.Fatal(err)
	}
	backend := redistest.Start(t)
	client := backend.Client(t)
	for _, kind := range []string{"intent", "alone", "transactional"} {
		t.Run(kind, func(t *testing.T) {
			f := &fleet{T: t, paid: map[string]int{}}
			provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				f.mu.Lock()
				defer f.mu.Unlock()
				id := r.URL.Query().Get("id")
				f.paid[id]++
				fmt.Fprint(w, id, " ", f.paid[id])
			}))
			defer provider.Close()
			f.args = []string{kind, backend.Addr(), source, provider.URL}
			kills := f.killWhile(func() { f.settleAll(calls) }, func() { client.FlushAll(context.Background()) })
			if kind == "transactional" {
				var n, distinct int
				if err := db.QueryRow("select count(*), count(distinct id) from payments").Scan(&n, &distinct); err != nil || n != calls || distinct != calls {
					t.Errorf("%d payments of %d calls, %v; want %d", n, distinct, err, calls)
				}
			}
			for id, n := range f.paid {
				if n > 1 {
					t.Errorf("call %s took effect %d times", id, n)
				}
			}
			if t.Logf("%d calls, %d of unknown outcome, %d kills", calls, f.unknown, kills); kills == 0 || f.unknown == calls {
				t.Error("want a kill, and an answer")
			}
		})
	}
}

// settleAll makes so many calls, of 32 callers.
func (f *fleet) settleAll(calls int) {
	var callers sync.WaitGroup
	for caller := range 32 {
		callers.Go(func() {
			for i := caller; i < calls; i += 32 {
				f.settle(fmt.Sprint(i))
			}
		})
	}
	callers.Wait()
}

// killWhile kills and restarts one server after the other until work has ended, calls forget every 20 ms, and returns how many
// it has killed. It kills the first one at once, because few calls may take less than a tick.
func (f *fleet) killWhile(work, forget func()) (kills int) {
	f.Helper()
	processes := [2]*redistest.Process{f.start(0), f.start(1)}
	done := make(chan bool)
	go func() {
		defer close(done)
		work()
	}()
	every := time.Tick(20 * time.Millisecond)
	for {
		processes[kills%2].Kill(f.T)
		processes[kills%2] = f.start(kills % 2)
		kills++
		for range 25 {
			forget()
			select {
			case <-every:
			case <-done:
				return kills
			}
		}
	}
}
