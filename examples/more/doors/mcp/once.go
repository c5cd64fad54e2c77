package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/onceguard/onceguard/once"
)

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
			return nil, none, explain(err) // the SDK makes it a result with isError
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
		decoder.UseNumber() // numbers stay as they were sent; the order of members does not count
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

func (s sentence) Error() string { return string(s) }

func tell(format string, args ...any) error { return sentence(fmt.Sprintf(format, args...)) }

// explain returns the error of once.Do as a sentence for a model.
func explain(err error) error {
	var refused *once.Refused
	if !errors.As(err, &refused) {
		return err // of the tool, now or in the call that it repeats
	}
	seconds := math.Ceil(refused.RetryAfter.Seconds())
	switch {
	case errors.Is(err, once.ErrInFlight):
		return tell("An earlier call with this %s is still running. Wait %.0f seconds, then call again with the same "+
			"%[1]s and the same arguments.", keyArgument, seconds)
	case errors.Is(err, once.ErrNotKnownYet):
		return tell("It is not known yet whether this call took effect. Wait %.0f seconds, then call again with the same %s "+
			"and the same arguments to find out. Do not try it in another way.", seconds, keyArgument)
	case refused.Retryable:
		return tell("This call did nothing: the server cannot tell whether it was done before. Wait %.0f seconds, then "+
			"call again with the same %s and the same arguments.", seconds, keyArgument)
	case errors.Is(err, once.ErrReused):
		return tell("This %s belongs to a call with other arguments, so nothing was done. To repeat that call, send "+
			"the same arguments. For something new, use a new %[1]s.", keyArgument)
	case errors.Is(err, once.ErrNotStored):
		return tell("An earlier call with this %s has done this. Its result was not kept. Do not call again.", keyArgument)
	}
	return tell("It is not known whether an earlier call with this %s took effect. Do not call again, neither with "+
		"this %[1]s nor with another. Tell the user that a person must check %s.", keyArgument, refused.Key)
}
