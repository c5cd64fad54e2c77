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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"net"
	"net/http"
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
	listener, err := net.Listen("tcp", *addr)
	if err == nil {
		log.Printf("listening on http://%s/mcp", listener.Addr())
		err = serve(listener, *store)
	}
	log.Fatal(err)
}

// serve answers agents.
func serve(listener net.Listener, store string) error {
	// The client sends a command once: the effect of this example is a command, and a client that retries after a lost reply
	// would have it twice.
	client := redis.NewClient(&redis.Options{Addr: store, MaxRetries: -1, ReadTimeout: time.Minute})
	// For money: if the process dies while it pays, a person finds out what happened, and nobody pays again.
	guard := once.New(lock.New(client, "agent-payments"), once.WithAtMostOnce())

	server := mcp.NewServer(&mcp.Implementation{Name: "payments", Version: "1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{
		Name: "pay", Description: "Pays an amount to a payee. Repeating a call with the same idempotency_key is safe.",
		Annotations: &mcp.ToolAnnotations{IdempotentHint: true},
	}, callOnce(guard, pay(client)))

	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		// Any instance can take any call.
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	http.Handle("/mcp", auth.RequireBearerToken(verify, nil)(handler))
	// A tool may run for 60 s.
	web := &http.Server{ReadTimeout: 10 * time.Second, WriteTimeout: 70 * time.Second}
	return web.Serve(listener)
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
	IdempotencyKey string `json:"idempotency_key,omitempty" jsonschema:"a new random text for each payment, the same in a repetition"`
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
		// It may have been paid: the reply may be lost.
		if err != nil {
			return nil, receipt{}, once.Unknown(tell("It is not known whether this was paid. A person must check it."))
		}
		return nil, receipt{Payment: fmt.Sprint("p-", n)}, nil
	}
}

// keyArgument is the argument, and the member of _meta, that names what the agent wants to be done once. It is never the
// JSON-RPC id, which is another one in each try.
const keyArgument = "idempotency_key"

// callOnce lets each call of a tool take effect once. A replay and a refusal say so in the result, in words that a model
// can act on, because an agent sees no headers.
//
// An HTTP middleware in front of the server would not do: each try is another request, with another id in its body.
func callOnce[In, Out any](g *once.Guard, tool mcp.ToolHandlerFor[In, Out]) mcp.ToolHandlerFor[In, Out] {
	return func(ctx context.Context, req *mcp.CallToolRequest, in In) (_ *mcp.CallToolResult, none Out, _ error) {
		key, err := keyOf(req)
		if err != nil {
			return nil, none, err
		}
		out, replayed, err := once.Do(ctx, g, key, func(ctx context.Context) (Out, error) {
			_, out, err := tool(ctx, req, in)
			return out, err
		})
		switch {
		case err != nil:
			// The SDK makes it a result with isError.
			return nil, none, explain(err)
		case !replayed:
			return nil, out, nil
		}
		text, err := json.Marshal(out)
		return &mcp.CallToolResult{
			Meta: mcp.Meta{"idempotent_replayed": true},
			Content: []mcp.Content{&mcp.TextContent{Text: "An earlier call with this " + keyArgument +
				" has done this already. It was not done again. The result of that call: " + string(text)}},
		}, out, err
	}
}

// keyOf returns the key of a call: the tool, the authenticated user, and what the agent has named. The Input is the
// arguments without the name.
func keyOf(req *mcp.CallToolRequest) (key once.Key, err error) {
	if req.Extra == nil || req.Extra.TokenInfo == nil || req.Extra.TokenInfo.UserID == "" {
		return key, tell("Nobody is logged in. Nothing was done.")
	}
	arguments := map[string]any{}
	if sent := req.Params.Arguments; len(sent) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(sent))
		// Numbers stay as they were sent; the order of members does not count.
		decoder.UseNumber()
		if err := decoder.Decode(&arguments); err != nil {
			return key, err
		}
	}
	id, _ := req.Params.Meta[keyArgument].(string)
	if id == "" {
		id, _ = arguments[keyArgument].(string)
	}
	if id == "" {
		return key, tell("Nothing was done. Call again with the argument %s: "+
			"a new random text for each new payment, and the same text whenever you repeat a call.", keyArgument)
	}
	delete(arguments, keyArgument)
	return once.Key{Operation: req.Params.Name, Scope: req.Extra.TokenInfo.UserID, ID: id, Input: arguments}, nil
}

// sentence is an error for a model to read.
type sentence string

// Error returns the sentence.
func (s sentence) Error() string { return string(s) }

func tell(format string, args ...any) error { return sentence(fmt.Sprintf(format, args...)) }

// explain returns the error of once.Do as a sentence for a model.
func explain(err error) error {
	var refused *once.Refused
	if !errors.As(err, &refused) {
		// It is the tool's, now or in the call that it repeats.
		return err
	}
	again := fmt.Sprintf("Wait %.0f seconds, then call again with the same %s and the same arguments",
		math.Ceil(refused.RetryAfter.Seconds()), keyArgument)
	switch {
	case errors.Is(err, once.ErrInFlight):
		return tell("An earlier call with this %s is still running. %s.", keyArgument, again)
	case errors.Is(err, once.ErrNotKnownYet):
		return tell("It is not known yet whether this call took effect. %s to find out. "+
			"Do not try it in another way.", again)
	case refused.Retryable:
		return tell("This call did nothing: the server cannot tell whether it was done before. %s.", again)
	case errors.Is(err, once.ErrReused):
		return tell("This %s belongs to a call with other arguments, so nothing was done. "+
			"For something new, use a new one.", keyArgument)
	case errors.Is(err, once.ErrNotStored):
		return tell("An earlier call with this %s has done this. Do not call again.", keyArgument)
	}
	return tell("It is not known whether an earlier call with this %s took effect. "+
		"Do not call again. Tell the user that a person must check %s.", keyArgument, refused.Key)
}
