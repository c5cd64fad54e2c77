// Command connect is a payments service for Connect, gRPC and gRPC-Web, in which each call takes effect once.
//
//	go run .
//
// It listens on 127.0.0.1:8080, by HTTP/1.1 and by HTTP/2 without TLS, with an embedded Redis that is forgotten at the
// end. Twice the same call gives the same payment:
//
//	curl -i -u ann: 127.0.0.1:8080/payments.v1.Payments/Pay -H 'Content-Type: application/json' \
//	  -H 'Idempotency-Key: k1' -d '"1250"'
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceguard/onceguard/lock"
)

func main() {
	embedded := miniredis.NewMiniRedis()
	if err := embedded.Start(); err != nil {
		log.Fatal(err)
	}
	defer embedded.Close()
	client := redis.NewClient(&redis.Options{Addr: embedded.Addr(), ContextTimeoutEnabled: true})
	locker := lock.New(client, "payments-connect")

	once, interceptor := protect(locker)
	server := &http.Server{
		Addr: "127.0.0.1:8080", Handler: routes(once, interceptor, pay), Protocols: new(http.Protocols),
		ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true) // gRPC needs HTTP/2
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	go func() {
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			log.Fatal(err)
		}
	}()
	log.Print("listening on http://", server.Addr)
	<-stopped.Done()

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := errors.Join(server.Shutdown(ctx), locker.Close(ctx), client.Close()); err != nil {
		log.Print(err)
	}
}

// payments is the procedure's path.
const payments = "/payments.v1.Payments/Pay"

type procedure = func(context.Context, *connect.Request[wrapperspb.Int64Value]) (*connect.Response[wrapperspb.StringValue], error)

// routes returns the service, with once around the procedure that has an effect.
func routes(once func(http.Handler) http.Handler, interceptor connect.Interceptor, pay procedure) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(payments, once(connect.NewUnaryHandler(payments, pay, connect.WithInterceptors(interceptor))))
	return mux
}

// pay takes an amount and returns a payment's id.
func pay(_ context.Context, req *connect.Request[wrapperspb.Int64Value]) (*connect.Response[wrapperspb.StringValue], error) {
	if req.Msg.Value <= 0 {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the amount is not positive"))
	}
	return connect.NewResponse(wrapperspb.String(uuid.NewString())), nil
}
