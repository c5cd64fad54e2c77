package grpconce

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// digest returns a hash of the message, as the Input of a key.
func digest(m proto.Message) ([]byte, error) {
	encoded, err := marshal.Marshal(m)
	sum := sha256.Sum256(canonical(encoded, m.ProtoReflect().Descriptor()))
	return sum[:], err
}

// marshal encodes a request before its fields are put in order. Deterministic decodes the fields that are [lazy = true]:
// until somebody reads them, they are in the encoding of the client.
var marshal = proto.MarshalOptions{AllowPartial: true, Deterministic: true}

// field is one record of an encoded message: a tag and a value.
type field struct {
	number  protowire.Number
	encoded []byte
	entry   []byte // encoded, if it is an entry of a map; their order means nothing
}

// canonical returns the one encoding of a message that we compare: its fields by number, the known ones and the unknown
// ones alike, the entries of a map by their bytes, and so for the messages inside. It is an encoding of the message, so
// different messages have different ones. Deterministic alone does not do: it may change between builds, and it puts
// unknown fields at the end, so two instances of a server with different schemas would not agree.
//
// raw comes from marshal, which has put known fields into the form that the descriptor says: packed or not, the
// shortest varint.
func canonical(raw []byte, message protoreflect.MessageDescriptor) []byte {
	var fields []field
	for rest := raw; len(rest) > 0; {
		number, kind, size := protowire.ConsumeField(rest)
		if size < 0 {
			fields = append(fields, field{encoded: rest}) // marshal makes no such bytes
			break
		}
		f := field{number: number, encoded: rest[:size]}
		if fd := descriptorOf(message, number); fd != nil && fd.Message() != nil {
			f.encoded = canonicalField(f.encoded, number, kind, fd)
			if fd.IsMap() && kind == protowire.BytesType {
				f.entry = f.encoded
			}
		}
		fields = append(fields, f)
		rest = rest[size:]
	}
	slices.SortStableFunc(fields, func(a, b field) int {
		return cmp.Or(cmp.Compare(a.number, b.number), bytes.Compare(a.entry, b.entry))
	})
	b := make([]byte, 0, len(raw))
	for _, f := range fields {
		b = append(b, f.encoded...)
	}
	return b
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

// canonicalField is canonical for the record of a field whose value is a message. A record of another wire type, which
// decoders leave among the unknown fields, stays as it is.
func canonicalField(raw []byte, number protowire.Number, kind protowire.Type, fd protoreflect.FieldDescriptor) []byte {
	_, _, tag := protowire.ConsumeTag(raw)
	switch {
	case kind == protowire.BytesType && fd.Kind() == protoreflect.MessageKind:
		value, _ := protowire.ConsumeBytes(raw[tag:])
		return protowire.AppendBytes(protowire.AppendTag(nil, number, kind), canonical(value, fd.Message()))
	case kind == protowire.StartGroupType && fd.Kind() == protoreflect.GroupKind:
		value, _ := protowire.ConsumeGroup(number, raw[tag:])
		return protowire.AppendGroup(protowire.AppendTag(nil, number, kind), number, canonical(value, fd.Message()))
	}
	return raw
}
