package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Main(m, redistest.Program{Name: "server", Run: func(args []string, _ io.Reader, out io.Writer) error {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Fprintln(out, listener.Addr())
		return serve(listener, args[0])
	}})
}

// agent is a client of a server in another process. Each of its calls has another JSON-RPC id.
type agent struct {
	t       *testing.T
	session *mcp.ClientSession
}

func newAgent(t *testing.T, server *redistest.Process) *agent {
	t.Helper()
	transport := &mcp.StreamableClientTransport{
		Endpoint: "http://" + server.Line(t) + "/mcp", HTTPClient: &http.Client{Transport: bearer{}},
		DisableStandaloneSSE: true, MaxRetries: -1,
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		session.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return &agent{t, session}
}

type bearer struct{}

func (bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer ann-token")
	return http.DefaultTransport.RoundTrip(r)
}

// pay calls the tool, and returns the text of the result.
func (a *agent) pay(amount int, key string, meta mcp.Meta) (text string, result *mcp.CallToolResult) {
	arguments := map[string]any{"payee": "bob", "amount": amount}
	if key != "" {
		arguments["idempotency_key"] = key
	}
	result, err := a.session.CallTool(context.Background(), &mcp.CallToolParams{Meta: meta, Name: "pay", Arguments: arguments})
	if err != nil {
		return err.Error(), nil
	}
	return result.Content[0].(*mcp.TextContent).Text, result
}

func (a *agent) want(part string, isError bool, amount int, key string) {
	a.t.Helper()
	text, result := a.pay(amount, key, nil)
	if result == nil || !strings.Contains(text, part) || result.IsError != isError {
		a.t.Errorf("%q, %+v; want %q", text, result, part)
	}
}

func TestCalls(t *testing.T) {
	server := redistest.Start(t)
	a := newAgent(t, redistest.Run(t, "server", server.Addr()))
	a.want("Call again with the argument idempotency_key", true, 1250, "")
	a.want("must be positive", true, -1, "k1")
	a.want(`{"payment":"p-1"}`, false, 1250, "k1")
	a.want("It was not done again", false, 1250, "k1")
	a.want("belongs to a call with other arguments", true, 9999, "k1")
	text, result := a.pay(1250, "", mcp.Meta{"idempotency_key": "k1"})
	if result == nil || result.Meta["idempotent_replayed"] != true || !strings.Contains(text, "p-1") {
		t.Errorf("%q %+v", text, result)
	}
	wantPayments(t, server, 1)
}

// A model may write the arguments of a repetition in another order, or leave out those of a tool that needs none.
func TestArguments(t *testing.T) {
	input := func(arguments string) string {
		t.Helper()
		key, err := keyOf(&mcp.CallToolRequest{
			Params: &mcp.CallToolParamsRaw{
				Meta: mcp.Meta{"idempotency_key": "k1"}, Name: "pay", Arguments: json.RawMessage(arguments),
			},
			Extra: &mcp.RequestExtra{TokenInfo: &auth.TokenInfo{UserID: "ann"}},
		})
		if err != nil || key.Operation != "pay" || key.Scope != "ann" || key.ID != "k1" {
			t.Errorf("%s: %+v, %v", arguments, key, err)
		}
		text, err := json.Marshal(key.Input)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	one := input(`{"to": {"name": "bob", "bank": "b"}, "amount": 9007199254740993}`)
	for _, same := range []string{
		`{"amount":9007199254740993,"to":{"bank":"b","name":"bob"}}`,
		`{"amount":9007199254740993,"to":{"bank":"b","name":"bob"},"idempotency_key":"k2"}`,
	} {
		if got := input(same); got != one {
			t.Errorf("%s is another input than %s", got, one)
		}
	}
	if input(`{"amount":9007199254740992,"to":{"bank":"b","name":"bob"}}`) == one {
		t.Error("another amount is the same input")
	}
	if got := input(""); got != "{}" {
		t.Errorf("no arguments: %s", got)
	}
}

// fault: the server is killed when it has paid and stored the result, and before it answers. The agent calls another
// server, with another JSON-RPC id, and gets the payment.
func TestKilledBeforeTheAnswer(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	process := redistest.Run(t, "server", proxy.Addr())
	first := newAgent(t, process)
	first.want("p-1", false, 1, "loads the scripts")
	stored := proxy.HoldReply(redistest.Named("EVALSHA"))
	lost := make(chan bool)
	go func() {
		first.pay(1250, "k1", nil)
		close(lost)
	}()
	stored.Wait(t)
	process.Kill(t)
	<-lost
	second := newAgent(t, redistest.Run(t, "server", server.Addr()))
	second.want("It was not done again", false, 1250, "k1")
	second.want("p-2", false, 1250, "k1")
	wantPayments(t, server, 2)
}

func wantPayments(t *testing.T, server *redistest.Server, want int64) {
	t.Helper()
	if n := server.Client(t).LLen(context.Background(), "payments").Val(); n != want {
		t.Errorf("%d payments, want %d", n, want)
	}
}
