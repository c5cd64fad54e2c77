package grpconce

import (
	"errors"
	"strings"
	"time"

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
	return refusal(run.CallOf(r.Reason), metadata, retry...)
}

// badKey returns the status for an error of keyOf.
func badKey(err error) error {
	if errors.Is(err, keyfunc.ErrMissing) {
		return refusal(&run.KeyMissing.Answer().Call, nil)
	}
	return refusal(&run.KeyInvalid.Answer().Call, nil)
}

// noUser returns the status of a call whose user function has returned err or, if that is nil, no user.
func noUser(err error) error {
	if _, ok := status.FromError(err); ok && err != nil {
		return err
	}
	return refusal(&run.UserUnknown.Answer().Call, nil)
}

// refusal returns a status with an ErrorInfo, which has the metadata.
func refusal(c *run.Call, metadata map[string]string, more ...protoadapt.MessageV1) error {
	info := &errdetails.ErrorInfo{Reason: c.Reason, Domain: domain, Metadata: metadata}
	st := status.New(codes.Code(c.Code), c.Text)
	if detailed, err := st.WithDetails(append([]protoadapt.MessageV1{info}, more...)...); err == nil {
		st = detailed
	}
	return st.Err()
}
