// Command mcp is a server of the Model Context Protocol with one tool, which costs money. An agent that calls it again,
// after a timeout or by mistake, does not pay twice.
//
//	redis-server &
//	go run .
//
// It listens on http://127.0.0.1:8080/mcp. The bearer token ann-token is that of the user ann.
//
//	curl 127.0.0.1:8080/mcp -H 'Authorization: Bearer ann-token' -H 'Content-Type: application/json' \
//	  -H 'Accept: application/json, text/event-stream' -d '{"jsonrpc":"2.0","id":1,"method":"tools/call",
//	  "params":{"name":"pay","arguments":{"payee":"bob","amount":1250,"idempotency_key":"rent 2026-11"}}}'
//
// Send it again with "id":2: the result is the same payment, and says that it is a replay.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`host:port` to listen on")
	store := flag.String("redis", "127.0.0.1:6379", "`host:port` of Redis")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", *addr)
	if err == nil {
		log.Printf("listening on http://%s/mcp", listener.Addr())
		err = serve(ctx, listener, *store)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serve answers agents until ctx is done.
func serve(ctx context.Context, listener net.Listener, store string) error {
	client := connect(store)
	locker := lock.New(client, "agent-payments")
	// For money: if the process dies while it pays, a person finds out what happened, and nobody pays again.
	guard := once.New(locker, once.WithAtMostOnce(), once.WithMaxDuration(25*time.Second))

	server := mcp.NewServer(&mcp.Implementation{Name: "payments", Version: "1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{
		Name: "pay", Description: "Pays an amount to a payee. Repeating a call with the same idempotency_key is safe.",
		Annotations: &mcp.ToolAnnotations{IdempotentHint: true},
	}, callOnce(guard, pay(client)))

	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}) // any instance can take any call
	mux := http.NewServeMux()
	mux.Handle("/mcp", auth.RequireBearerToken(verify, nil)(handler))
	web := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(web.Shutdown(closing), locker.Close(closing), client.Close())
}

// verify stands for your authentication. The user's id must be stable: it is a part of the key, and a token is not.
func verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	if token != "ann-token" {
		return nil, auth.ErrInvalidToken
	}
	return &auth.TokenInfo{UserID: "ann", Expiration: time.Now().Add(time.Hour)}, nil
}

type order struct {
	Payee          string `json:"payee" jsonschema:"who is paid"`
	Amount         int64  `json:"amount" jsonschema:"in cents"`
	IdempotencyKey string `json:"idempotency_key,omitempty" jsonschema:"a new random text for each new payment, the same when a call is repeated"`
}

type receipt struct {
	Payment string `json:"payment"`
}

// pay stands for your payment provider: it appends to a list.
func pay(client *redis.Client) mcp.ToolHandlerFor[order, receipt] {
	return func(ctx context.Context, _ *mcp.CallToolRequest, o order) (*mcp.CallToolResult, receipt, error) {
		if o.Amount <= 0 {
			return nil, receipt{}, once.NothingHappened(tell("The amount must be positive. Nothing was paid."))
		}
		n, err := client.RPush(ctx, "payments", fmt.Sprint(o.Payee, " ", o.Amount)).Result()
		if err != nil { // it may have been paid: the reply may be lost
			return nil, receipt{}, once.Unknown(tell("It is not known whether this was paid. A person must check it."))
		}
		return nil, receipt{Payment: fmt.Sprint("p-", n)}, nil
	}
}

// connect returns a client of Redis. It sends a command once: the effect of this example is a command, and a client that
// retries after a lost reply would have it twice.
func connect(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, ReadTimeout: 20 * time.Second,
	})
}
