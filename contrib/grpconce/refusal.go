package grpconce

import (
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onceguard/onceguard/once"
)

// words are what a status says: Reason is the ErrorInfo's, and text is for developers of clients.
type words struct {
	code         codes.Code
	reason, text string
}

var (
	keyMissing  = words{codes.InvalidArgument, "KEY_MISSING", "the metadata idempotency-key is missing"}
	keyInvalid  = words{codes.InvalidArgument, "KEY_INVALID", "the metadata idempotency-key is malformed"}
	userUnknown = words{codes.Unauthenticated, "USER_UNKNOWN", "the caller is not known"}
)

// wordsOf has a row for each [once.Refused].Reason.
var wordsOf = map[error]words{
	once.ErrInFlight:    {codes.Aborted, "IN_FLIGHT", "a call with this idempotency key has not ended yet"},
	once.ErrFailed:      {codes.Unavailable, "RUN_FAILED", "the other call with this idempotency key has left no response"},
	once.ErrUnavailable: {codes.Unavailable, "STORE_UNAVAILABLE", "the store cannot tell whether this call was made before"},
	once.ErrNotKnownYet: {codes.Unavailable, "NOT_KNOWN_YET", "it is not known yet whether this call took effect"},
	once.ErrReused:      {codes.InvalidArgument, "KEY_REUSED", "this idempotency key belongs to another request"},
	once.ErrNotStored: {codes.FailedPrecondition, "RESPONSE_NOT_STORED",
		"an earlier call with this idempotency key took effect, and its response was not kept"},
	once.ErrOutcomeUnknown: {codes.FailedPrecondition, "OUTCOME_UNKNOWN",
		"it is not known whether an earlier call with this idempotency key took effect"},
	once.ErrUnreadable: {codes.Internal, "RECORD_UNREADABLE", "what is stored for this idempotency key cannot be read"},
	once.ErrInvalidKey: keyInvalid,
}

// refusedStatus returns the status of a call that once.Do has refused. It does not have the error behind the refusal,
// which may name a server.
func refusedStatus(r *once.Refused) error {
	metadata := map[string]string{}
	if _, hash, ok := strings.Cut(r.Key, "}"); ok {
		metadata["instance"] = "urn:onceguard:key:" + hash
	}
	if r.FirstRunning {
		metadata["first_running"] = "true"
	}
	if !r.FirstEnded.IsZero() {
		metadata["first_ended"] = r.FirstEnded.Format(time.RFC3339Nano)
	}
	var retry []protoadapt.MessageV1
	if r.Retryable {
		retry = append(retry, &errdetails.RetryInfo{RetryDelay: durationpb.New(r.RetryAfter)})
	}
	return refusal(wordsOf[r.Reason], metadata, retry...)
}

// refusal returns a status with an ErrorInfo, which has the metadata.
func refusal(w words, metadata map[string]string, more ...protoadapt.MessageV1) error {
	info := &errdetails.ErrorInfo{Reason: w.reason, Domain: "onceguard", Metadata: metadata}
	st := status.New(w.code, w.text)
	if detailed, err := st.WithDetails(append([]protoadapt.MessageV1{info}, more...)...); err == nil {
		st = detailed
	}
	return st.Err()
}
