// Package grpconce lets each call of a gRPC service take effect once: it is package once of onceguard for grpc-go.
//
//	guard := once.New(lock.New(client, "payments"), once.WithAtMostOnce())
//	server := grpc.NewServer(grpc.ChainUnaryInterceptor(
//		authenticate,
//		grpconce.Unary(guard, currentUser, grpconce.WithMethods(pb.Payments_Pay_FullMethodName), grpconce.WithRequired()),
//	))
//
// A client sends a key in the metadata idempotency-key, the same in every try. The first call with a key runs the
// handler, and its response is stored. A later call gets that response, with idempotent-replayed: true in the header
// metadata, or a status that says why there is none. Options of [once.New] say how long a response is kept, whether a
// duplicate waits, and what happens after a crash.
//
// # What is one call
//
// Calls are one if the method, the user and the key are the same. The user is a stable id, never a token, because a
// token that is refreshed between two tries makes them two calls. The requests must be the same too. They are compared
// field by field, so it does not matter in which order a client sends the entries of a map, or whether an older
// instance of the server does not know a field yet. The bytes in a google.protobuf.Any, in a field that is not known, and
// in messages that are nested more than 100 deep are compared as they are.
//
// # What is stored
//
// With the response, the header and trailer metadata that the handler and the interceptors after this one have set are
// stored and sent again. Metadata set before this one is not. A response is at most 750 KiB long; a longer one is sent,
// and later calls get RESPONSE_NOT_STORED. If a status and its metadata are longer, a status with the same code
// replaces them.
//
// The statuses InvalidArgument, NotFound, AlreadyExists, FailedPrecondition and OutOfRange are results: they are
// stored, with their details. Any other error frees the key, so that the next call runs. With [once.WithAtMostOnce] and
// with an intent journal it is stored as well. A handler that knows more says so, and the mark is removed before the
// status is sent:
//
//	return nil, once.NothingHappened(status.Error(codes.Unavailable, "no connection"))
//	return nil, once.Unknown(status.Error(codes.DeadlineExceeded, "the provider did not answer"))
//	return nil, once.Final(status.Error(codes.Aborted, "card declined"))
//
// A handler's context does not end when the client leaves, because the response is stored for the retry. It ends at the
// client's deadline.
//
// # With a journal
//
// An intent journal protects calls as package once describes it, also without Redis (lock.None). A transactional journal
// cannot commit the response of a call with the handler's transaction. For an effect in your database give Unary a Guard
// without a journal, and let the handler call sqljournal.Do with a Guard that has one. The key of the call is the ID, and
// an error means that the call may be tried again:
//
//	key := once.Key{Operation: "pay", Scope: once.Anyone, ID: once.FromContext(ctx).Key()}
//	payment, _, err := sqljournal.Do(ctx, journaled, key, nil, func(ctx context.Context, tx *sql.Tx) (Payment, error) {
//		return insertPayment(ctx, tx, order)
//	})
//	if err != nil {
//		return nil, status.Error(codes.Unavailable, "try again") // by default this frees the key of the call
//	}
//
// # What a refused call gets
//
// Each status has an ErrorInfo with the domain "onceguard", the reason below, and in its metadata instance, the name of
// the key, for a person who looks it up. The statuses that may be tried again have a RetryInfo. After KEY_REUSED the metadata
// has first_running or first_ended, a time, of the call that has the key.
//
//	Aborted             IN_FLIGHT            another call with this key runs, or its process died a moment ago; retry
//	Unavailable         RUN_FAILED           the call that this one waited for has left no response; retry
//	Unavailable         STORE_UNAVAILABLE    Redis or the journal does not answer; nothing ran; retry
//	Unavailable         NOT_KNOWN_YET        it is not known yet whether this call took effect; retry
//	FailedPrecondition  OUTCOME_UNKNOWN      nobody knows whether an earlier call took effect; with an intent journal, retry
//	FailedPrecondition  RESPONSE_NOT_STORED  an earlier call took effect, and its response was too long
//	InvalidArgument     KEY_REUSED           the key belongs to another request
//	InvalidArgument     KEY_MISSING          WithRequired, and there is no key
//	InvalidArgument     KEY_INVALID          the key is empty, has more than 255 characters, or comes twice
//	Unauthenticated     USER_UNKNOWN         there is no user
//	Internal            RECORD_UNREADABLE    what is stored cannot be read
//	Internal            REQUEST_UNREADABLE   the request is no protobuf message
//
// # Limits
//
//   - Streams pass untouched.
//   - In a protected handler grpc.SendHeader sends nothing before the response is stored, and grpc.SetSendCompressor
//     returns an error.
//   - The response's type must be linked into every instance of the server, as generated code does.
//
// Observers of the Guard, such as those of contrib/otelonce and contrib/promonce, get an Event for each call that comes to
// it, with the method as Operation. Calls without a valid key or without a user do not come to it.
package grpconce
