package canonical

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// Find returns the value in text to which the reference tokens of a JSON Pointer lead, or nil if there is none. text must be
// valid JSON. twice is true if an object on the way has the name twice. Names that are equal under simple Unicode case
// folding count as one name that occurs twice, because encoding/json may fill a struct's field from either.
//
// Find takes time in proportion to the length of text times the number of tokens.
func Find(text []byte, tokens []string) (value []byte, twice bool) {
	value = bytes.TrimLeft(text, " \t\r\n")
	for _, token := range tokens {
		if value, twice = find(value, token); value == nil || twice {
			break
		}
	}
	return value, twice
}

// find is Find for one token. An index has no sign and no leading zero (RFC 6901, section 4).
func find(text []byte, token string) (found json.RawMessage, twice bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	opening, _ := d.Token() // the text is valid
	if _, isOpening := opening.(json.Delim); !isOpening {
		return nil, false
	}
	seen := 0
	for n := 0; d.More(); n++ {
		name := strconv.Itoa(n)
		if opening == json.Delim('{') {
			member, _ := d.Token()
			name = member.(string)
		}
		if strings.EqualFold(name, token) {
			seen++
		}
		var value json.RawMessage
		if _ = d.Decode(&value); name == token {
			found = value
		}
	}
	return found, seen > 1
}
