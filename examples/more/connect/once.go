// Package onceconnect is what a connect service needs besides middleware.Idempotency: three functions to copy. Its test has a
// service, and calls it by Connect, gRPC and gRPC-Web. A server of gRPC needs HTTP/2: [http.Protocols.SetUnencryptedHTTP2].
package onceconnect

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// protect returns a middleware for the unary procedures of connect, whether they are called by Connect, gRPC or
// gRPC-Web. The key is in the Idempotency-Key header, which gRPC calls metadata. The handler inside must have the
// interceptor: what does not reach it counts as refused by connect, and frees the key.
func protect(locker *lock.Locker, opts ...middleware.Option) (func(http.Handler) http.Handler, connect.Interceptor) {
	opts = append([]middleware.Option{
		middleware.WithRequired(), middleware.WithAtMostOnce(), middleware.WithProblem(writeProblem),
	}, opts...)
	idempotency := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), opts...)
	once := func(procedure http.Handler) http.Handler { return idempotency(storable(procedure)) }
	return once, connect.UnaryInterceptorFunc(discardRefusals)
}

var errorWriter = connect.NewErrorWriter()

// writeProblem writes a problem as an error of the client's own protocol. gRPC's clients understand no other.
func writeProblem(w http.ResponseWriter, r *http.Request, p middleware.Problem) {
	code := codes[p.Status]
	if p.Status == http.StatusConflict && p.Retryable {
		code = connect.CodeAborted
	}
	err := connect.NewError(code, errors.New(p.Title+". "+p.Detail))
	// It fails if the client has left.
	_ = errorWriter.Write(w, r, err)
}

// codes has the code that tells a client what the status of a problem would: Unavailable may be tried again, as may a 409 that
// is retryable, which is in-flight and becomes Aborted.
var codes = map[int]connect.Code{
	http.StatusBadRequest:            connect.CodeInvalidArgument,
	http.StatusUnauthorized:          connect.CodeUnauthenticated,
	http.StatusConflict:              connect.CodeFailedPrecondition,
	http.StatusRequestEntityTooLarge: connect.CodeResourceExhausted,
	http.StatusUnprocessableEntity:   connect.CodeInvalidArgument,
	http.StatusInternalServerError:   connect.CodeInternal,
	http.StatusServiceUnavailable:    connect.CodeUnavailable,
}

// discardRefusals frees the key when the procedure was refused before it had an effect. It must be an interceptor,
// because an error of gRPC has the HTTP status 200, and its code in the trailers: WithStored sees only the 200, and both are
// stored and replayed. Of any other error nobody but the procedure knows whether something happened: it calls Discard
// itself, or the error is stored and replayed.
func discardRefusals(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if reached, ok := ctx.Value(reachedKey{}).(*bool); ok {
			*reached = true
		}
		res, err := next(ctx, req)
		if err != nil {
			switch connect.CodeOf(err) {
			case connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeNotFound,
				connect.CodeUnimplemented, connect.CodeResourceExhausted:
				// It fails only after Keep or Unknown, which count more.
				_ = middleware.FromContext(ctx).Discard()
			}
		}
		return res, err
	}
}

// reachedKey is the key of a bool in the context, which discardRefusals sets to true.
type reachedKey struct{}

// storable makes the response of a unary procedure one that can be stored and replayed.
//
//   - It hides Flush. connect flushes every message of gRPC, which would send the response before it is stored, and undo a
//     Discard. A procedure that streams needs Flush, and cannot be protected in this way.
//   - It hides which compressions the client accepts, because a replay may go to a client that accepts none.
//   - It frees the key if connect refuses the call before discardRefusals: a malformed message, an unknown compression.
func storable(procedure http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached := false
		r = r.WithContext(context.WithValue(r.Context(), reachedKey{}, &reached))
		r.Header = r.Header.Clone()
		r.Header.Del("Accept-Encoding")
		r.Header.Del("Grpc-Accept-Encoding")
		procedure.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
		if !reached {
			_ = middleware.FromContext(r.Context()).Discard()
		}
	})
}
