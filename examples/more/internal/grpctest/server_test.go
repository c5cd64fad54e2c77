package grpctest_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceguard/onceguard/contrib/grpconce"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
	"github.com/onceguard/onceguard/sqljournal"
)

func TestMain(m *testing.M) {
	redistest.Main(m, redistest.Program{Name: "payments", Run: serve})
}

const (
	namespace = "payments"
	method    = "/payments.v1.Payments/Pay"
	none      = "none" // instead of the address of Redis
	inTx      = "inTx" // instead of the URL of a provider: the payments are rows in the database
)

// newLocker returns the Locker of a server.
func newLocker(addr string) *lock.Locker {
	if addr == none {
		return lock.None(namespace)
	}
	return lock.New(redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}), namespace, lock.WithTTL(time.Second))
}

// serve is the program of a server. Its arguments are the address of Redis, and the URLs of the database and the provider.
// It prints its address, and serves until its input ends or it is killed.
func serve(args []string, in io.Reader, out io.Writer) error {
	db, err := sql.Open("pgx", args[1])
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(16)
	locker, limit := newLocker(args[0]), once.WithMaxDuration(2*time.Second)
	guard := once.New(locker, once.WithJournal(sqljournal.Intent(db, namespace)), limit)
	pay := payAt(args[2])
	if args[2] == inTx {
		guard = once.New(locker, limit)
		pay = payInTx(once.New(locker, once.WithJournal(sqljournal.Transactional(db, namespace)), limit))
	}
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
	go func() { _ = server.Serve(listener) }()
	if _, err := fmt.Fprintln(out, listener.Addr()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	server.Stop()
	return err
}

// payAt returns a handler that gets the number of the payment from a provider.
func payAt(provider string) func(ctx context.Context, id string) (string, error) {
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
func payInTx(guard *once.Guard) func(ctx context.Context, id string) (string, error) {
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
