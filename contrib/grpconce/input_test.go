package grpconce

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/runtime/protoiface"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// schemaText is a message with fields of every wire type, and with messages in every place.
const schemaText = `name: "p.proto" package: "p" extension: {
	name: "x" number: 97 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".p.M" extendee: ".p.M"
} message_type: {
	name: "M" extension_range: {start: 97 end: 98}
	field: {name: "a" number: 1 type: TYPE_DOUBLE label: LABEL_OPTIONAL}
	field: {name: "b" number: 2 type: TYPE_FLOAT label: LABEL_OPTIONAL}
	field: {name: "c" number: 3 type: TYPE_INT64 label: LABEL_OPTIONAL}
	field: {name: "d" number: 4 type: TYPE_SINT32 label: LABEL_OPTIONAL}
	field: {name: "e" number: 5 type: TYPE_FIXED32 label: LABEL_OPTIONAL}
	field: {name: "f" number: 6 type: TYPE_BOOL label: LABEL_OPTIONAL}
	field: {name: "g" number: 7 type: TYPE_BYTES label: LABEL_OPTIONAL}
	field: {name: "packed" number: 8 type: TYPE_UINT64 label: LABEL_REPEATED options: {packed: true}}
	field: {name: "list" number: 9 type: TYPE_BYTES label: LABEL_REPEATED}
	field: {name: "inner" number: 10 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".p.M"}
	field: {name: "inners" number: 11 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".p.M"}
	field: {name: "map" number: 12 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".p.M.MapEntry"}
	field: {name: "group" number: 13 type: TYPE_GROUP label: LABEL_OPTIONAL type_name: ".p.M.Group"}
	nested_type: {
		name: "Group"
		field: {name: "c" number: 3 type: TYPE_INT64 label: LABEL_OPTIONAL}
		field: {name: "g" number: 7 type: TYPE_BYTES label: LABEL_OPTIONAL}
	}
	nested_type: {
		name: "MapEntry" options: {map_entry: true}
		field: {name: "key" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL}
		field: {name: "value" number: 2 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".p.M"}
	}
}`

// schema returns the descriptor of the message in schemaText, without the fields with these numbers.
func schema(t testing.TB, without ...int32) protoreflect.MessageDescriptor {
	t.Helper()
	file := new(descriptorpb.FileDescriptorProto)
	if err := prototext.Unmarshal([]byte(schemaText), file); err != nil {
		t.Fatal(err)
	}
	message := file.MessageType[0]
	message.Field = slices.DeleteFunc(message.Field, func(f *descriptorpb.FieldDescriptorProto) bool {
		return slices.Contains(without, f.GetNumber())
	})
	if slices.Contains(without, 12) {
		message.NestedType = message.NestedType[:1] // a MapEntry belongs to a map
	}
	linked, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return linked.Messages().Get(0)
}

// canonicalOf decodes raw and returns the message and its canonical bytes, or nil if raw is no message.
func canonicalOf(t testing.TB, raw []byte, of protoreflect.MessageDescriptor) (proto.Message, []byte) {
	t.Helper()
	m := dynamicpb.NewMessage(of)
	if unmarshal(raw, m) != nil {
		return nil, nil
	}
	encoded, err := marshal.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return m, canonical(encoded, of, maxDepth)
}

// unmarshal is proto.Unmarshal, which panics for a dynamic message if a map's key comes twice in an entry, the second time
// with a wrong wire type.
func unmarshal(raw []byte, m *dynamicpb.Message) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return proto.Unmarshal(raw, m)
}

func tagged(number protowire.Number, kind protowire.Type, value ...byte) []byte {
	return append(protowire.AppendTag(nil, number, kind), value...)
}

func message(number protowire.Number, parts ...[]byte) []byte {
	return protowire.AppendBytes(tagged(number, protowire.BytesType), bytes.Join(parts, nil))
}

// Agree what two clients, or two versions of a server, may encode differently. Only the entries of a map may come in any
// order: a record of another wire type, which a decoder leaves among the unknown fields, keeps its place.
func TestCanonical(t *testing.T) {
	full := schema(t)
	if _, err := protoregistry.GlobalTypes.FindExtensionByNumber("p.M", 97); err != nil { // generated code registers it
		_ = protoregistry.GlobalTypes.RegisterExtension(dynamicpb.NewExtensionType(full.ParentFile().Extensions().Get(0)))
	}
	number := func(number protowire.Number, values ...byte) (raw []byte) {
		for _, v := range values {
			raw = append(raw, tagged(number, protowire.VarintType, v)...)
		}
		return raw
	}
	one, two, empty, x := number(3, 1), number(3, 2), message(7), message(7, []byte("x"))
	entry := func(key byte, value ...[]byte) []byte { return message(12, number(1, key), message(2, value...)) }
	group := func(parts ...[]byte) []byte {
		return protowire.AppendGroup(tagged(13, protowire.StartGroupType), 13, bytes.Join(parts, nil))
	}
	type of [][]byte
	for name, c := range map[string]struct {
		a, b    of
		without int32 // b's server does not know this field
		differ  bool
	}{
		"fields":              {of{one, x}, of{x, one}, 0, false},
		"a map":               {of{entry(1, one), entry(2)}, of{entry(2), entry(1, one)}, 0, false},
		"inside of an entry":  {of{entry(1, one, x)}, of{entry(1, x, one)}, 0, false},
		"a map in a map":      {of{entry(1, entry(1), entry(2))}, of{entry(1, entry(2), entry(1))}, 0, false},
		"inside of a list":    {of{message(11, one, x)}, of{message(11, x, one)}, 0, false},
		"inside of a group":   {of{group(one, x)}, of{group(x, one)}, 0, false},
		"an extension":        {of{message(97, entry(1), entry(2))}, of{message(97, entry(2), entry(1))}, 0, false},
		"packed or not":       {of{message(8, []byte{1, 2})}, of{number(8, 1, 2)}, 0, false},
		"a long varint":       {of{one}, of{tagged(3, protowire.VarintType, 0x81, 0)}, 0, false},
		"a field twice":       {of{two}, of{one, two}, 0, false},
		"unknown fields":      {of{one, number(98, 1)}, of{number(98, 1), one}, 0, false},
		"an unknown scalar":   {of{one, x}, of{x, one}, 3, false},
		"an unknown message":  {of{message(10, one), x}, of{x, message(10, one)}, 10, false},
		"an unknown map":      {of{one, entry(1), entry(2)}, of{entry(1), entry(2), one}, 12, false},
		"an unknown group":    {of{one, group(one)}, of{group(one), one}, 13, false},
		"unknown inside":      {of{message(10, one, empty)}, of{message(10, empty, one)}, 7, false},
		"a list":              {of{message(9, one), message(9, two)}, of{message(9, two), message(9, one)}, 0, true},
		"an unknown list":     {of{number(98, 1, 2)}, of{number(98, 2, 1)}, 0, true},
		"no entries":          {of{number(12, 48, 32)}, of{number(12, 32, 48)}, 0, true},
		"no entries, and one": {of{number(12, 48), entry(1), number(12, 32)}, of{number(12, 32), entry(1), number(12, 48)}, 0, true},
	} {
		_, a := canonicalOf(t, bytes.Join(c.a, nil), full)
		_, b := canonicalOf(t, bytes.Join(c.b, nil), schema(t, c.without))
		if a == nil || b == nil || bytes.Equal(a, b) == c.differ {
			t.Errorf("%s: %x and %x", name, a, b)
		}
	}
}

// A message whose fields are out of order at each of many levels is moved at maxDepth of them at most. At greater depth only
// the order of maps means nothing.
func TestCanonicalDeep(t *testing.T) {
	full := schema(t)
	first, second := message(12, tagged(1, protowire.VarintType, 1)), message(12, tagged(1, protowire.VarintType, 2))
	a, b := slices.Concat(first, second), slices.Concat(second, first)
	for range 2 * maxDepth {
		a, b = message(10, a), message(10, b)
	}
	_, canonicalA := canonicalOf(t, a, full)
	if _, canonicalB := canonicalOf(t, b, full); canonicalA == nil || !bytes.Equal(canonicalA, canonicalB) {
		t.Errorf("the order of a map, deep inside: %x and %x", canonicalA, canonicalB)
	}

	hostile := message(7, make([]byte, 1<<15))
	for range 20 * maxDepth {
		hostile = slices.Concat(message(10, hostile), tagged(3, protowire.VarintType, 1))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	canonical(hostile, full, maxDepth)
	runtime.ReadMemStats(&after)
	if got := int(after.TotalAlloc - before.TotalAlloc); got > 2*maxDepth*len(hostile) {
		t.Errorf("%d bytes allocated for a message of %d", got, len(hostile))
	}
}

// A field that is decoded only when somebody reads it does not depend on that: two clients encode it differently.
func TestDigestOfLazyField(t *testing.T) {
	of := schema(t)
	one, two := tagged(3, protowire.VarintType, 1), tagged(3, protowire.VarintType, 2)
	decoded := dynamicpb.NewMessage(of)
	if err := proto.Unmarshal(two, decoded); err != nil {
		t.Fatal(err)
	}
	want, _ := digest(decoded)
	if got, err := digest(lazy{decoded, slices.Concat(one, two)}); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%x, %v, want %x", got, err, want)
	}
}

// lazy is a message that is encoded as it came, unless the encoding has to be deterministic: generated code does that with
// fields that are [lazy = true].
type lazy struct {
	protoreflect.Message
	raw []byte
}

func (m lazy) ProtoReflect() protoreflect.Message { return m }

func (m lazy) ProtoMethods() *protoiface.Methods {
	return &protoiface.Methods{
		Flags: protoiface.SupportMarshalDeterministic,
		Marshal: func(in protoiface.MarshalInput) (out protoiface.MarshalOutput, err error) {
			if in.Flags&protoiface.MarshalDeterministic == 0 {
				out.Buf = append(in.Buf, m.raw...)
				return out, nil
			}
			out.Buf, err = proto.MarshalOptions{Deterministic: true}.MarshalAppend(in.Buf, m.Interface())
			return out, err
		},
	}
}

// Different messages differ, and encodings of one message agree. For the latter, the floating-point fields are unknown ones,
// which proto.Equal compares by their bytes: it takes 0 and -0 for equal, and any NaN and another.
func FuzzCanonical(f *testing.F) {
	one, two := tagged(3, protowire.VarintType, 1), tagged(3, protowire.VarintType, 2)
	f.Add(one, two)
	f.Add(message(12, one, message(2, two)), message(12, message(2, two), one))
	f.Add(message(10, message(11, one)), message(10, message(11, two)))
	f.Add(message(8, []byte{1, 2, 3}), tagged(8, protowire.VarintType, 1, 8<<3, 2, 8<<3, 3))
	f.Add(slices.Concat(message(99, one), tagged(12, protowire.VarintType, 4)), slices.Concat(one, message(99, one)))
	f.Add(tagged(12, protowire.VarintType, 48, 12<<3, 32), one)
	f.Add(protowire.AppendGroup(tagged(13, protowire.StartGroupType), 13, one), one)
	f.Add(tagged(1, protowire.Fixed64Type, 0, 0, 0, 0, 0, 0, 0, 0, 1<<3|1, 0, 0, 0, 0, 0, 0, 0, 0x80), one)
	full, integral := schema(f), schema(f, 1, 2)
	f.Fuzz(func(t *testing.T, rawA, rawB []byte) {
		a, canonicalA := canonicalOf(t, rawA, full)
		b, canonicalB := canonicalOf(t, rawB, full)
		if a == nil || b == nil {
			return
		}
		again, stable := canonicalOf(t, canonicalA, full)
		if again == nil || !proto.Equal(again, a) || !bytes.Equal(stable, canonicalA) {
			t.Fatalf("%x is no encoding of %v, or is not stable: %x", canonicalA, a, stable)
		}
		if same := bytes.Equal(canonicalA, canonicalB); same && !proto.Equal(a, b) {
			t.Fatalf("%v and %v: both %x", a, b, canonicalA)
		}
		if len(rawA) > 2*maxDepth { // it may be nested so deep that the order of unknown fields counts
			return
		}
		a, canonicalA = canonicalOf(t, rawA, integral)
		reversed := reverse(rawA)
		if r, canonicalR := canonicalOf(t, reversed, integral); r != nil && proto.Equal(r, a) && !bytes.Equal(canonicalR, canonicalA) {
			t.Fatalf("%x and %x are one message, with %x and %x", rawA, reversed, canonicalA, canonicalR)
		}
	})
}

// reverse returns the fields of an encoded message in the opposite order.
func reverse(raw []byte) (reversed []byte) {
	for len(raw) > 0 {
		_, _, size := protowire.ConsumeField(raw)
		if size < 0 {
			return nil
		}
		reversed = slices.Concat(raw[:size], reversed)
		raw = raw[size:]
	}
	return reversed
}
