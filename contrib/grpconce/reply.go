package grpconce

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/onceguard/onceguard/once"
)

// reply is how the answer to a call is stored: as a value or, in JSON, as the text of an error.
type reply struct {
	Type    string `json:",omitempty"` // full name of the response's message; empty if there is a Status
	Message []byte `json:",omitempty"` // the response, in protobuf
	Status  []byte `json:",omitempty"` // a google.rpc.Status; empty if there is a response
	Header  values `json:",omitempty"`
	Trailer values `json:",omitempty"`
}

// values is metadata whose values may be any bytes. JSON would replace what is not UTF-8 in a string.
type values map[string][][]byte

func newValues(md metadata.MD) values {
	v := make(values, len(md))
	for name, lines := range md {
		for _, line := range lines {
			v[name] = append(v[name], []byte(line))
		}
	}
	return v
}

func (v values) metadata() metadata.MD {
	md := make(metadata.MD, len(v))
	for name, lines := range v {
		for _, line := range lines {
			md[name] = append(md[name], string(line))
		}
	}
	return md
}

// Resolution returns what [once.Guard.Resolve] takes for a call whose outcome is unknown, by what an operator has found
// out. response and err are what the handler would have returned. The error is a status marked [once.Final], or
// [once.NothingHappened]: then the next call runs.
//
//	v, failed := grpconce.Resolution(&pb.Payment{Id: "p-1"}, nil)
//	err := guard.Resolve(ctx, storageKey, token, v, failed)
func Resolution(response proto.Message, err error) (any, error) {
	return newReply(response, err, &stream{})
}

// newReply returns what a handler has returned as the function of once.Do returns it. The error is a *failure.
func newReply(response any, err error, s *stream) (reply, error) {
	header, trailer := s.recorded()
	r := reply{Header: newValues(header), Trailer: newValues(trailer)}
	if err == nil {
		if err = r.setResponse(response); err == nil {
			return r, nil
		}
		err = once.Final(status.Errorf(codes.Internal, "grpconce: the response cannot be encoded: %v", err))
	}
	st := statusOf(err).Proto()
	f := &failure{reply: r, cause: err, final: isFinal(codes.Code(st.Code))}
	st.Message = strings.ToValidUTF8(st.Message, "\uFFFD") // as gRPC sends it
	if f.reply.Status, err = proto.Marshal(st); err != nil {
		st.Details = nil // one has a type that is not UTF-8; gRPC does not send them either
		f.reply.Status, _ = proto.Marshal(st)
	}
	if len(f.Error()) > maxText {
		st = &spb.Status{Code: st.Code, Message: "grpconce: the status with its metadata is too long to be stored"}
		f.reply = reply{}
		f.reply.Status, _ = proto.Marshal(st)
	}
	return reply{}, f
}

// maxText is the greatest length of an error's text that package once does not cut.
const maxText = 1 << 20

func (r *reply) setResponse(response any) error {
	message, ok := response.(proto.Message)
	if !ok || !message.ProtoReflect().IsValid() {
		return fmt.Errorf("%T is no protobuf message, or nil", response)
	}
	encoded, err := proto.Marshal(message)
	if err != nil {
		return err
	}
	r.Type, r.Message = string(message.ProtoReflect().Descriptor().FullName()), encoded
	return nil
}

// response returns the response, which is nil if the reply is a status.
func (r *reply) response() (any, error) {
	if r.Type == "" {
		return nil, nil
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(r.Type))
	if err != nil {
		return nil, fmt.Errorf("the response is a %s, which this instance does not know", r.Type)
	}
	message := kind.New().Interface()
	if err := proto.Unmarshal(r.Message, message); err != nil { // whose text may quote the response
		return nil, fmt.Errorf("the response is no %s", r.Type)
	}
	return message, nil
}

// failed returns the status as an error, or nil if the reply is a response.
func (r *reply) failed() error {
	if r.Type != "" {
		return nil
	}
	st := new(spb.Status)
	if err := proto.Unmarshal(r.Status, st); err != nil || st.Code == int32(codes.OK) {
		return status.Error(codes.Unknown, "grpconce: the stored status cannot be read")
	}
	return status.ErrorProto(st)
}

// failure is an error of a handler. Its text is the reply, so that once stores the whole of it.
type failure struct {
	reply reply
	cause error // what the handler has returned, with its mark
	final bool
}

// Error returns the reply, encoded.
func (f *failure) Error() string {
	text, _ := json.Marshal(&f.reply) // strings and bytes always have JSON
	return string(text)
}

var errFinal = errors.New("this status is final")

// Unwrap returns the handler's error first, because its mark counts more than that of the code.
func (f *failure) Unwrap() []error {
	if f.final {
		return []error{f.cause, once.Final(errFinal)}
	}
	return []error{f.cause}
}

func isFinal(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange:
		return true
	}
	return false
}

// statusOf returns the status that the server would send for err. Wrappers that add no text, such as a mark of package
// once, do not count: grpc would put the text of a wrapped status into the message.
func statusOf(err error) *status.Status {
	for {
		inner := errors.Unwrap(err)
		if inner == nil || inner.Error() != err.Error() {
			break
		}
		err = inner
	}
	if st, ok := status.FromError(err); ok {
		return st
	}
	return status.FromContextError(err)
}
