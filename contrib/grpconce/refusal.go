package grpconce

import (
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/once"
)

// domain is the ErrorInfo's.
const domain = "onceguard"

// refusedStatus returns the status of a call that once.Do has refused. It does not have the error behind the refusal,
// which may name a server.
func refusedStatus(r *once.Refused) error {
	_, hash, _ := strings.Cut(r.Key, "}")
	var retry []protoadapt.MessageV1
	if r.Retryable {
		retry = append(retry, &errdetails.RetryInfo{RetryDelay: durationpb.New(r.RetryAfter)})
	}
	return refusal(run.CallOf(r.Reason), hash, retry...)
}

// badKey returns the status for an error of keyOf.
func badKey(err error) error {
	if errors.Is(err, keyfunc.ErrMissing) {
		return refusal(&run.KeyMissing.Answer().Call, "")
	}
	return refusal(&run.KeyInvalid.Answer().Call, "")
}

// noUser returns the status of a call whose user function has returned err or, if that is nil, no user.
func noUser(err error) error {
	if _, ok := status.FromError(err); ok && err != nil {
		return err
	}
	return refusal(&run.UserUnknown.Answer().Call, "")
}

// refusal returns a status with an ErrorInfo. hash is the key's, empty if it has none.
func refusal(c *run.Call, hash string, more ...protoadapt.MessageV1) error {
	info := &errdetails.ErrorInfo{Reason: c.Reason, Domain: domain}
	if hash != "" {
		info.Metadata = map[string]string{"instance": "urn:onceguard:key:" + hash}
	}
	st := status.New(codes.Code(c.Code), c.Text)
	if detailed, err := st.WithDetails(append([]protoadapt.MessageV1{info}, more...)...); err == nil {
		st = detailed
	}
	return st.Err()
}
