package canonical

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxDepth is how deep the arrays and objects of a JSON text may be nested. At each level the bytes inside may be moved
// once, to sort the members of an object.
const maxDepth = 100

// SumJSON is SumBody, except that two JSON texts (RFC 8259) have the same hash if they say the same. White space, the order
// of an object's members and the escapes in a string do not count, nor do the values that ignored leads to. A number counts
// as it is written: 1 and 1.0 differ.
//
// A body is hashed as SumBody does it, and never has the hash of one that is not, in these cases:
//
//   - Its media type is neither application/json nor one that ends in +json (RFC 6839, section 3.1).
//   - It is not one JSON text in UTF-8, or is nested more than 100 deep.
//   - An object has two names that are the same or differ only in case. Parsers do not agree which of them counts (RFC
//     8259, section 4), and encoding/json ignores the case.
//   - A string escapes half of a surrogate pair (RFC 8259, section 8.2).
//
// SumJSON takes linear time, except that sorting may move each byte once for each level of nesting. It needs memory for a
// few copies of the body, and 32 bytes for each member of the objects that are open. It may overwrite the spare capacity of
// fields.
func SumJSON(fields []byte, contentType string, body []byte, ignored *Pointers) [sha256.Size]byte {
	mediaType := MediaType(contentType)
	if mediaType == "application/json" || strings.HasSuffix(mediaType, "+json") {
		head := append(AppendPart(fields, mediaType), "json"...) // SumBody has "raw" or "parts" in its place
		if said, ok := AppendJSON(head, body, ignored); ok {
			return sha256.Sum256(said)
		}
	}
	return SumBody(fields, contentType, body)
}

// SumValues returns the SHA-256 of fields and the body, where two bodies have the same hash if they are JSON texts with the
// same values. It is as SumJSON, except that no media type counts, and that numbers are compared as exact decimals: 1, 1.0
// and 1e0 are the same, and so are 0 and -0. A body is also hashed as bytes if a number has an exponent of more than 15
// digits.
func SumValues(fields, body []byte) [sha256.Size]byte {
	if said, ok := appendJSON(append(fields, "json"...), body, nil, true); ok {
		return sha256.Sum256(said)
	}
	return SumBytes(fields, body)
}

// SumBytes returns the SHA-256 of fields and the bytes of the body, whatever they are.
func SumBytes(fields, body []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	h.Write(appendNumber(append(fields, "raw"...), len(body)))
	h.Write(body)
	h.Sum(sum[:0])
	return sum
}

// AppendJSON appends what a JSON text says, without the values that ignored leads to. Two texts have the same encoding if
// and only if they say the same. If ok is false, the text is one of those that SumJSON hashes as bytes.
func AppendJSON(dst, text []byte, ignored *Pointers) (_ []byte, ok bool) {
	return appendJSON(dst, text, ignored, false)
}

func appendJSON(dst, text []byte, ignored *Pointers, asDecimals bool) (_ []byte, ok bool) {
	if !utf8.Valid(text) || !json.Valid(text) || hasHalfPair(text) {
		return dst, false
	}
	w := jsonWriter{tokens: json.NewDecoder(bytes.NewReader(text)), dst: dst, asDecimals: asDecimals}
	w.tokens.UseNumber()
	w.value(ignored, 0)
	return w.dst, !w.unclear
}

// hasHalfPair reports whether a string of a valid text escapes half of a surrogate pair: encoding/json takes that for U+FFFD.
func hasHalfPair(text []byte) bool {
	afterHigh := false // the escape before was the first half of a pair
	for {
		at := bytes.IndexByte(text, '\\')
		if at < 0 || afterHigh && at > 0 {
			return afterHigh
		}
		half, length := byte(0), 2
		if text = text[at:]; text[1] == 'u' {
			unit, _ := strconv.ParseUint(string(text[2:6]), 16, 16)
			half, length = byte(unit>>10), 6
		}
		if afterHigh != (half == 0xdc00>>10) {
			return true
		}
		afterHigh, text = half == 0xd800>>10, text[length:]
	}
}

// jsonWriter appends the values of a JSON text to dst, each as its kind and its content:
//
//	n, t or f   null, true or false
//	# part      a number, as it is written or, if asDecimals is set, as an exact decimal
//	" part      a string, without its escapes
//	[ ... ]     an array: its values
//	{ ... }     an object: its members, sorted. Each is a part, the name, and a value
//
// No value begins with a closing bracket, and no part does. So the encoding can be decoded again.
type jsonWriter struct {
	tokens     *json.Decoder // of a text that is valid
	dst        []byte
	moved      []byte // memory for sorting
	asDecimals bool
	unclear    bool // something was met that two parsers may understand differently; never reset
}

// next returns the next token of the text.
func (w *jsonWriter) next() json.Token {
	token, _ := w.tokens.Token() // the text is valid
	return token
}

// value appends the next value. at is its place in the pointers, or nil if none leads into it.
func (w *jsonWriter) value(at *Pointers, depth int) {
	switch v := w.next().(type) {
	case json.Delim:
		w.dst = append(w.dst, byte(v))
		switch {
		case depth == maxDepth:
			w.unclear = true
		case v == '{':
			w.object(at, depth+1)
		default:
			w.array(at, depth+1)
		}
	case string:
		w.dst = AppendPart(append(w.dst, '"'), v)
	case json.Number:
		w.dst = AppendPart(append(w.dst, '#'), w.number(v))
	case bool:
		w.dst = append(w.dst, map[bool]byte{false: 'f', true: 't'}[v])
	default:
		w.dst = append(w.dst, 'n')
	}
}

// number returns a number as it is encoded.
func (w *jsonWriter) number(n json.Number) string {
	if !w.asDecimals {
		return string(n)
	}
	decimal, ok := appendDecimal(nil, []byte(n))
	w.unclear = w.unclear || !ok
	return string(decimal)
}

// array appends the rest of an array, whose "[" was read.
func (w *jsonWriter) array(at *Pointers, depth int) {
	for i := 0; !w.unclear && w.tokens.More(); i++ {
		start, inside := len(w.dst), at.element(i)
		w.value(inside, depth)
		if inside.end() {
			w.dst = w.dst[:start]
		}
	}
	w.next()
	w.dst = append(w.dst, ']')
}

// jsonMember is a member of an object.
type jsonMember struct {
	name       string // folded
	start, end int    // in dst
}

// object appends the rest of an object, whose "{" was read.
func (w *jsonWriter) object(at *Pointers, depth int) {
	var members []jsonMember
	for !w.unclear && w.tokens.More() {
		name, start := w.next().(string), len(w.dst)
		w.dst = AppendPart(w.dst, name)
		inside := at.member(name)
		w.value(inside, depth)
		if inside.end() {
			w.dst = w.dst[:start]
		}
		members = append(members, jsonMember{strings.Map(leastFold, name), start, len(w.dst)})
	}
	w.next()
	w.sort(members)
	w.dst = append(w.dst, '}')
}

// leastFold returns the least of the characters that are equal to c but for their case, as [strings.EqualFold] compares
// them.
func leastFold(c rune) rune {
	least := c
	for other := unicode.SimpleFold(c); other != c; other = unicode.SimpleFold(other) {
		least = min(least, other)
	}
	return least
}

// sort sorts the members of one object, which are the last bytes of dst, by their folded names. That order is the same for
// all texts, because no two of these names are equal.
func (w *jsonWriter) sort(members []jsonMember) {
	compare := func(a, b jsonMember) int { return strings.Compare(a.name, b.name) }
	if !slices.IsSortedFunc(members, compare) {
		start := members[0].start
		w.moved = append(w.moved[:0], w.dst[start:]...)
		w.dst = w.dst[:start]
		slices.SortFunc(members, compare)
		for _, m := range members {
			w.dst = append(w.dst, w.moved[m.start-start:m.end-start]...)
		}
	}
	for i := 1; i < len(members); i++ {
		w.unclear = w.unclear || members[i-1].name == members[i].name
	}
}
