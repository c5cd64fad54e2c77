package keyfunc

import (
	"bytes"
	"encoding/json"
)

// lookUp returns the value in body that steps lead to, or nil if there is none. body must be valid JSON. twice is true
// if an object on the way has the name twice. lookUp takes time in proportion to the length of body times the number of
// steps, however many values there are, and copies only names with escapes.
func lookUp(body []byte, steps []step) (value []byte, twice bool) {
	value = body
	for _, s := range steps {
		if value, twice = s.find(value); value == nil || twice {
			break
		}
	}
	return value, twice
}

// find returns the value that s leads to in one value, or nil. Names that are equal under simple Unicode case folding
// count as one name that occurs twice, because encoding/json may fill a struct's field from either.
func (s step) find(value []byte) (found []byte, twice bool) {
	w := walker{text: value}
	opening, seen := w.next(), 0
	if opening != '{' && opening != '[' {
		return nil, false
	}
	w.at++
	for n := 0; w.next() != opening+2; n++ { // in ASCII, '}' is '{' + 2, and ']' is '[' + 2
		matches := n == s.index
		if opening == '{' {
			name := unquote(w.value())
			matches = bytes.Equal(name, s.name)
			if bytes.EqualFold(name, s.name) {
				seen++
			}
		}
		if v := w.value(); matches {
			found = v
		}
	}
	return found, seen > 1
}

// unquote returns the text of a JSON string.
func unquote(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	var text string
	_ = json.Unmarshal(quoted, &text) // it is valid
	return []byte(text)
}

// walker walks over valid JSON, value by value.
type walker struct {
	text []byte
	at   int
}

// next skips space and separators, and returns the byte that follows. Something must follow.
func (w *walker) next() byte {
	for {
		switch c := w.text[w.at]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			w.at++
		default:
			return c
		}
	}
}

// value walks over the next value, or name of an object, and returns it.
func (w *walker) value() []byte {
	w.next()
	start := w.at
	for depth := 0; ; {
		switch w.next() {
		case '{', '[':
			depth++
			w.at++
		case '}', ']':
			depth--
			w.at++
		case '"':
			w.skipString()
		default: // a number, true, false or null
			w.skipLiteral()
		}
		if depth == 0 {
			return w.text[start:w.at]
		}
	}
}

func (w *walker) skipString() {
	for w.at++; w.text[w.at] != '"'; w.at++ {
		if w.text[w.at] == '\\' {
			w.at++ // what follows may be a quote
		}
	}
	w.at++
}

func (w *walker) skipLiteral() {
	for {
		switch w.text[w.at] {
		case ' ', '\t', '\r', '\n', ',', ']', '}':
			return
		}
		w.at++
	}
}
