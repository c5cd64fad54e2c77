package grpconce

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/once"
)

const (
	keyName      = "idempotency-key"     // in the metadata of a call
	replayedName = "idempotent-replayed" // in the header metadata of a stored response
)

// Option changes a default of [Unary].
type Option func(*options)

type options struct {
	required bool
	methods  []string // empty: every method
}

// WithRequired refuses a call without a key. By default it passes unprotected.
func WithRequired() Option { return func(o *options) { o.required = true } }

// WithMethods protects only the methods with these full names, such as "/payments.v1.Payments/Pay": the ones with an
// effect. Calls of others pass untouched, with or without a key. By default every unary method is protected. It panics
// if there is none.
func WithMethods(fullMethods ...string) Option {
	if len(fullMethods) == 0 {
		panic("grpconce.WithMethods: there is no method")
	}
	return func(o *options) { o.methods = fullMethods }
}

// Unary returns an interceptor that lets each call with a key take effect once.
//
// user returns the stable id of the caller, from what an earlier interceptor has put into the context. It is asked only
// for calls with a key. If it returns "" or an error, the call gets Unauthenticated, or the error's own status if it
// has one. If all callers share one scope, it returns [once.Anyone].
//
// Put it after authentication and recovery, and before what must not run twice. After a panic the outcome of the call
// is unknown, and the panic goes on. Unary panics if g, user or an option is nil. The interceptor may be called
// concurrently if user may.
func Unary(g *once.Guard, user func(context.Context) (string, error), opts ...Option) grpc.UnaryServerInterceptor {
	if g == nil || user == nil {
		panic("grpconce.Unary: the guard or the user function is nil")
	}
	var o options
	for _, opt := range opts {
		if opt == nil {
			panic("grpconce.Unary: an option is nil")
		}
		opt(&o)
	}
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if len(o.methods) > 0 && !slices.Contains(o.methods, info.FullMethod) {
			return handler(ctx, req)
		}
		id, err := keyOf(ctx)
		switch missing := errors.Is(err, keyfunc.ErrMissing); {
		case missing && !o.required:
			return handler(ctx, req)
		case missing:
			return nil, refusal(keyMissing, nil)
		case err != nil:
			return nil, refusal(keyInvalid, nil)
		}
		scope, err := user(ctx)
		if _, isStatus := status.FromError(err); err != nil && isStatus {
			return nil, err
		}
		if err != nil || scope == "" {
			return nil, refusal(userUnknown, nil)
		}
		input, err := digest(req)
		if err != nil {
			return nil, refusal(words{codes.Internal, "REQUEST_UNREADABLE", "the request is no protobuf message"}, nil)
		}
		key := once.Key{Operation: info.FullMethod, Scope: scope, ID: id, Input: input}
		return do(ctx, g, key, func(ctx context.Context) (any, error) { return handler(ctx, req) })
	}
}

// header reads the key as the HTTP door does: quoted or bare, once, 255 characters at most.
var header = keyfunc.Header(keyName)

func keyOf(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, keyName)
	return header(&http.Request{Header: http.Header{http.CanonicalHeaderKey(keyName): values}})
}

// do calls the handler once, and answers the call: it sets the metadata and returns the response or the status.
func do(ctx context.Context, g *once.Guard, key once.Key, handler func(context.Context) (any, error)) (any, error) {
	var response any // of this call's own run
	stored, replayed, err := once.Do(ctx, g, key, func(ctx context.Context) (reply, error) {
		inner := &stream{ServerTransportStream: grpc.ServerTransportStreamFromContext(ctx)}
		var failed error
		response, failed = handler(grpc.NewContextWithServerTransportStream(ctx, inner))
		return newReply(response, failed, inner)
	})
	var own *failure
	var earlier *once.StoredError
	var refused *once.Refused
	switch {
	case errors.As(err, &own):
		stored = own.reply
	case errors.As(err, &earlier):
		_ = json.Unmarshal([]byte(earlier.Error()), &stored) // no reply is a status that cannot be read
	case errors.As(err, &refused):
		return nil, refusedStatus(refused)
	}
	if replayed {
		if response, err = stored.response(); err != nil {
			return nil, refusal(words{codes.Internal, "RECORD_UNREADABLE", err.Error()}, nil)
		}
		_ = grpc.SetHeader(ctx, metadata.Pairs(replayedName, "true")) // fails only if the call is over
	}
	_ = grpc.SetHeader(ctx, stored.Header.metadata())
	_ = grpc.SetTrailer(ctx, stored.Trailer.metadata())
	if failed := stored.failed(); failed != nil {
		return nil, failed
	}
	return response, nil
}

// stream records the metadata that a handler sets, instead of sending it.
type stream struct {
	grpc.ServerTransportStream

	mu              sync.Mutex // guards header and trailer
	header, trailer metadata.MD
}

// SetHeader records a header of the reply.
func (s *stream) SetHeader(md metadata.MD) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.header = metadata.Join(s.header, md)
	return nil
}

// SendHeader records too: a header that is sent cannot be taken back when the run loses its key.
func (s *stream) SendHeader(md metadata.MD) error { return s.SetHeader(md) }

// SetTrailer records a trailer of the reply.
func (s *stream) SetTrailer(md metadata.MD) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trailer = metadata.Join(s.trailer, md)
	return nil
}

func (s *stream) recorded() (header, trailer metadata.MD) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.header, s.trailer
}
