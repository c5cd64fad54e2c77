package record

// The payload of a record whose door is Value is one byte, its form, and then the value as the codec has encoded it, or
// the text of the error. A tombstone has no payload.
const (
	FormValue = 0
	FormError = 1
)

// MaxResult is the greatest length in bytes of an encoded value that is stored. The text of a longer error is cut.
const MaxResult = 1 << 20
