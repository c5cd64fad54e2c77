package check

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

const notJSON = "the body is not JSON"

// A bodySpelling returns what is almost the same body, or nil if it has nothing to change.
type bodySpelling func(body []byte) []byte

// spaced has white space between the tokens.
func spaced(body []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, body, " ", " ") != nil || bytes.Equal(b.Bytes(), body) {
		return nil
	}
	return b.Bytes()
}

// otherNumber has a zero behind the point of the first number.
func otherNumber(body []byte) []byte {
	tokens := json.NewDecoder(bytes.NewReader(body))
	tokens.UseNumber()
	for {
		token, err := tokens.Token()
		if err != nil {
			return nil
		}
		number, ok := token.(json.Number)
		if !ok || strings.ContainsAny(number.String(), "eE") {
			continue
		}
		zero := ".0"
		if strings.Contains(number.String(), ".") {
			zero = "0"
		}
		return slices.Insert(slices.Clone(body), int(tokens.InputOffset()), []byte(zero)...)
	}
}

// withNull has one more member, which is null.
func withNull(body []byte) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil || members == nil {
		return nil
	}
	member := `"oncecheck":null`
	if len(members) > 0 {
		member = "," + member
	}
	return slices.Insert(slices.Clone(body), bytes.LastIndexByte(body, '}'), []byte(member)...)
}

// respelled returns the check that judges an operation, and its key with the other spelling of the body.
func respelled(spell bodySpelling, absent string, judge func(t *T, first, again ask.Exchange)) func(*T) {
	return func(t *T) {
		r := t.s.fresh()
		other := spell(r.Body)
		t.skipIf(other == nil, "%s", absent)
		first := t.Stored(r)
		r.Body = other
		judge(t, first, t.SendPatiently(r))
	}
}

// wantRefusal fails the check if the body was taken for that of the first.
func wantRefusal(t *T, _, other ask.Exchange) {
	t.failIf(other.Success(), "a refusal", "%s", other)
}
