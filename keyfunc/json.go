package keyfunc

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/onceguard/onceguard/internal/canonical"
	"github.com/onceguard/onceguard/internal/option"
)

// JSON reads the key from a value in a JSON body, at a JSON Pointer (RFC 6901) such as "/id" or "/events/0/id". It is
// for webhooks whose body names its event. Check the sender's signature in an outer middleware that puts the body back:
// otherwise a stranger can use up an event's id.
//
// The value is a string or a number. A number is taken as it is written: it keeps all of its digits, 1 and 1.0 differ,
// and 1 is the same key as "1". A provider that sends an event again may change other members, such as a counter of
// attempts. Then compare requests by what identifies the event, with middleware.WithFingerprint.
//
// JSON reads the whole body and puts it back. As with [Form], it sets no limit, and returns errors of reading wrapped.
// It parses every body but a form, whatever its Content-Type: some providers send JSON as text/plain.
//
// [MissingError]: there is no body, it is a form, or it has nothing or null at the pointer. ErrInvalid:
//
//   - The body is not one JSON text in UTF-8 (RFC 8259), or is nested more than 10,000 deep.
//   - An object that the pointer passes through has the name twice, so that two parsers could find two keys (RFC 8259,
//     section 4). Names that differ only in case count too, such as "id" and "ID": encoding/json reads both into one
//     field, and keeps the last. A single name in another case does not match the pointer: the key is missing.
//   - The body is empty although its length was not known in advance (chunks, HTTP/2): it may have been read before.
//   - The value is an object, an array, true or false, is empty, is longer than 255 characters, or has characters
//     outside 0x20-0x7E.
//
// JSON panics unless pointer is a JSON Pointer that is not empty. The Func is safe for concurrent use.
func JSON(pointer string) Func {
	tokens, ok := canonical.ParsePointer(pointer)
	option.Check(ok, "keyfunc.JSON: %q is not a JSON Pointer to a value in the body, such as \"/id\"", pointer)
	place := fmt.Sprintf("JSON value %q", pointer)
	missing := error(MissingError{In: "JSON value", Name: pointer})
	return func(r *http.Request) (string, error) {
		switch canonical.MediaType(r.Header.Get("Content-Type")) {
		case "application/x-www-form-urlencoded", "multipart/form-data":
			return "", missing
		}
		body, err := readBody(r)
		if err != nil {
			return "", err
		}
		if len(body) == 0 {
			return "", cmp.Or(emptyBody(place, r), missing)
		}
		if !utf8.Valid(body) || !json.Valid(body) {
			return "", invalid(place, "cannot be read: the body is not JSON")
		}
		value, twice := canonical.Find(body, tokens)
		if twice {
			return "", invalid(place, problemTwice)
		}
		return scalar(place, missing, value)
	}
}

// scalar returns the key that value stands for. A nil value is missing.
func scalar(place string, missing error, value []byte) (string, error) {
	switch {
	case value == nil, value[0] == 'n': // null
		return "", missing
	case value[0] == '"':
		var text string
		if err := json.Unmarshal(value, &text); err != nil {
			return "", invalid(place, "cannot be read")
		}
		return single(place, missing, []string{text})
	case value[0] == '-', '0' <= value[0] && value[0] <= '9':
		return single(place, missing, []string{string(value)})
	}
	return "", invalid(place, "is neither a string nor a number")
}
