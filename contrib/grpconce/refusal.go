package grpconce

import (
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/once"
)

// domain is the ErrorInfo's.
const domain = "onceguard"

// refusals has the status of each reason why once.Do did not run. The texts are for developers of clients. They do
// not have the error behind the refusal, which may name a server.
var refusals = []struct {
	is     error
	code   codes.Code
	reason string
	text   string
}{
	{once.ErrInFlight, codes.Aborted, "IN_FLIGHT", "a call with this idempotency key has not ended yet"},
	{once.ErrFailed, codes.Unavailable, "RUN_FAILED", "the other call with this idempotency key has left no response"},
	{once.ErrUnavailable, codes.Unavailable, "STORE_UNAVAILABLE", "it cannot be told whether this call was made before"},
	{once.ErrNotKnownYet, codes.Unavailable, "NOT_KNOWN_YET", "it is not known yet whether this call took effect"},
	{once.ErrOutcomeUnknown, codes.FailedPrecondition, "OUTCOME_UNKNOWN",
		"it is not known whether an earlier call with this idempotency key took effect"},
	{once.ErrNotStored, codes.FailedPrecondition, "RESPONSE_NOT_STORED",
		"an earlier call with this idempotency key took effect, and its response was not kept"},
	{once.ErrReused, codes.InvalidArgument, "KEY_REUSED", "this idempotency key belongs to another request"},
}

func refusedStatus(r *once.Refused) error {
	_, hash, _ := strings.Cut(r.Key, "}")
	for _, row := range refusals {
		if !errors.Is(r.Reason, row.is) {
			continue
		}
		var retry []protoadapt.MessageV1
		if r.Retryable {
			retry = append(retry, &errdetails.RetryInfo{RetryDelay: durationpb.New(r.RetryAfter)})
		}
		return refusal(row.code, row.reason, row.text, hash, retry...)
	}
	return refusal(codes.Internal, "RECORD_UNREADABLE", "what is stored for this idempotency key cannot be read", hash)
}

// badKey returns the status for an error of keyOf.
func badKey(err error) error {
	if errors.Is(err, keyfunc.ErrMissing) {
		return refusal(codes.InvalidArgument, "KEY_MISSING", "the metadata "+keyName+" is missing", "")
	}
	return refusal(codes.InvalidArgument, "KEY_INVALID", "the metadata "+keyName+" is malformed", "")
}

// noUser returns the status of a call whose user function has returned err or, if that is nil, no user.
func noUser(err error) error {
	if _, ok := status.FromError(err); ok && err != nil {
		return err
	}
	return refusal(codes.Unauthenticated, "USER_UNKNOWN", "the caller is not known", "")
}

// refusal returns a status with an ErrorInfo. hash is the key's, empty if it has none.
func refusal(code codes.Code, reason, text, hash string, more ...protoadapt.MessageV1) error {
	info := &errdetails.ErrorInfo{Reason: reason, Domain: domain}
	if hash != "" {
		info.Metadata = map[string]string{"instance": "urn:onceguard:key:" + hash}
	}
	st := status.New(code, text)
	if detailed, err := st.WithDetails(append([]protoadapt.MessageV1{info}, more...)...); err == nil {
		st = detailed
	}
	return st.Err()
}
