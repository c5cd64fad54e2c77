package grpconce

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// maxDepth is how deep the messages that canonical puts in order may be nested. At each level all bytes may be moved once.
const maxDepth = 100

// digest returns a hash of the request, which is a message, as the Input of a key.
func digest(request any) ([]byte, error) {
	m, ok := request.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no protobuf message", request)
	}
	encoded, err := marshal.Marshal(m)
	sum := sha256.Sum256(canonical(encoded, m.ProtoReflect().Descriptor(), maxDepth))
	return sum[:], err
}

// marshal encodes a request before its fields are put in order. Deterministic decodes the fields that are [lazy = true]:
// until somebody reads them, they are in the encoding of the client. It also sorts the maps below maxDepth.
var marshal = proto.MarshalOptions{AllowPartial: true, Deterministic: true}

// field is one record of an encoded message: a tag and a value.
type field struct {
	number     protowire.Number
	start, end int    // of the record, in the message
	entry      []byte // the record, if it is one of a map: the order of the entries means nothing
}

// canonical puts raw into the one encoding of a message that we compare, and returns it: the fields by number, the known
// ones and the unknown ones alike, the entries of a map by their bytes, and so for the messages inside, down to depth. It is
// an encoding of the message, so different messages have different ones. Deterministic alone does not do: it may change
// between builds, and it puts unknown fields at the end, so two instances of a server with different schemas would not
// agree.
//
// raw comes from marshal, which has put known fields into the form that the descriptor says: packed or not, the shortest
// varint.
func canonical(raw []byte, message protoreflect.MessageDescriptor, depth int) []byte {
	var fields []field
	for start := 0; start < len(raw); {
		number, kind, size := protowire.ConsumeField(raw[start:])
		if size < 0 {
			return raw // marshal makes no such bytes
		}
		f := field{number: number, start: start, end: start + size}
		if fd := descriptorOf(message, number); fd != nil && fd.Message() != nil && depth > 1 {
			canonical(valueOf(raw[start:f.end], number, kind, fd), fd.Message(), depth-1)
			if fd.IsMap() && kind == protowire.BytesType {
				f.entry = raw[start:f.end]
			}
		}
		fields = append(fields, f)
		start = f.end
	}
	inOrder := func(a, b field) int {
		return cmp.Or(cmp.Compare(a.number, b.number), bytes.Compare(a.entry, b.entry), cmp.Compare(a.start, b.start))
	}
	if slices.IsSortedFunc(fields, inOrder) {
		return raw
	}
	slices.SortFunc(fields, inOrder)
	sorted := make([]byte, 0, len(raw))
	for _, f := range fields {
		sorted = append(sorted, raw[f.start:f.end]...)
	}
	copy(raw, sorted)
	return raw
}

// descriptorOf returns the descriptor of a field or an extension, or nil if it is not known.
func descriptorOf(message protoreflect.MessageDescriptor, number protowire.Number) protoreflect.FieldDescriptor {
	if fd := message.Fields().ByNumber(number); fd != nil || !message.ExtensionRanges().Has(number) {
		return fd
	}
	extension, err := protoregistry.GlobalTypes.FindExtensionByNumber(message.FullName(), number)
	if err != nil {
		return nil
	}
	return extension.TypeDescriptor()
}

// valueOf returns the encoded message in the record of a field whose value is a message. A record of another wire type, which
// decoders leave among the unknown fields, has none.
func valueOf(raw []byte, number protowire.Number, kind protowire.Type, fd protoreflect.FieldDescriptor) (value []byte) {
	_, _, tag := protowire.ConsumeTag(raw)
	switch {
	case kind == protowire.BytesType && fd.Kind() == protoreflect.MessageKind:
		value, _ = protowire.ConsumeBytes(raw[tag:])
	case kind == protowire.StartGroupType && fd.Kind() == protoreflect.GroupKind:
		value, _ = protowire.ConsumeGroup(number, raw[tag:])
	}
	return value
}
