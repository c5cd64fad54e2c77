package canonical_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/onceguard/onceguard/internal/canonical"
)

const jsonType = "application/json"

func pointers(t testing.TB, list ...string) *canonical.Pointers {
	t.Helper()
	p, err := canonical.ParsePointers(list)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func sumJSON(contentType, body string, ignored *canonical.Pointers) [sha256.Size]byte {
	return canonical.SumJSON(nil, contentType, []byte(body), ignored)
}

func TestJSONSame(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		a, b    string
		ignored []string
	}{
		"the order of members":        {`{"a":1,"b":[2,{"c":3,"d":4}]}`, `{"b":[2,{"d":4,"c":3}],"a":1}`, nil},
		"members, names by case last": {`{"Z":1,"a":2,"É":3}`, `{"É":3,"a":2,"Z":1}`, nil},
		"white space":                 {`{"a":[1,2]}`, " {\n\t\"a\" :\r[ 1 , 2 ] } ", nil},
		"empty containers":            {`[{},[]]`, `[ { } , [ ] ]`, nil},
		"escapes":                     {`"a/é\"\\\b\f\n\r\t\u0000"`, `"\u0061\/\u00E9\u0022\u005c\u0008\u000c\u000a\u000D\u0009\u0000"`, nil},
		"escapes in names":            {`{"ab":1}`, `{"\u0061b":1}`, nil},
		"a surrogate pair":            {`"😀"`, `"\ud83d\uDE00"`, nil},
		"a member that is ignored":    {`{"a":1,"sent":"09:00"}`, `{"sent":{"at":[9,5]},"a":1}`, []string{"/sent"}},
		"one that is missing":         {`{"a":1,"sent":"09:00"}`, `{"a":1}`, []string{"/sent"}},
		"inside a member":             {`{"a":{"b":1,"c":2}}`, `{"a":{"b":1,"c":3}}`, []string{"/a/c"}},
		"inside an element":           {`[{"at":1},{"at":2}]`, `[{"at":1},{"at":3}]`, []string{"/1/at"}},
		"an element":                  {`[1,2,3]`, `[1,7,3]`, []string{"/1"}},
		"an element after the ninth":  {`[0,1,2,3,4,5,6,7,8,9,10]`, `[0,1,2,3,4,5,6,7,8,9,11]`, []string{"/10"}},
		"a number as a name":          {`{"0":1}`, `{"0":2}`, []string{"/0"}},
		"an escaped pointer":          {`{"a/b":{"~1":1}}`, `{"a/b":{"~1":2}}`, []string{"/a~1b/~01"}},
		"an empty name":               {`{"":1}`, `{"":2}`, []string{"/"}},
		"a pointer and one above it":  {`{"a":{"b":1}}`, `{"a":{"c":1}}`, []string{"/a/b", "/a"}},
		"an escaped name":             {`{"a":1}`, `{"\u0061":2}`, []string{"/a"}},
	} {
		if ignored := pointers(t, test.ignored...); sumJSON(jsonType, test.a, ignored) != sumJSON(jsonType, test.b, ignored) {
			t.Errorf("%s: the hashes differ", name)
		}
	}
	if sumJSON("application/json", "{}", nil) != sumJSON("Application/JSON; charset=utf-8", " {}", nil) {
		t.Error("the parameters of the media type count")
	}
	if sumJSON("application/vnd.shop+json", "{}", nil) != sumJSON("application/vnd.Shop+JSON", " {}", nil) {
		t.Error("+json is not taken as JSON")
	}
}

func TestJSONDifferent(t *testing.T) {
	t.Parallel()
	texts := []string{
		``, `null`, `true`, `false`, `0`, `-0`, `1`, `1.0`, `1e0`, `1E0`, `10`, `9007199254740993`, `9007199254740992`,
		`""`, `"1"`, `"null"`, `"n"`, `"a"`, `"é"`, `"e\u0301"`, `"\u0000"`, `" "`,
		`[]`, `[[]]`, `[[],[]]`, `[[[]]]`, `[null]`, `[1]`, `[1,2]`, `[2,1]`, `[12]`, `["1",2]`, `["1,2"]`, `[[1],2]`, `[[1,2]]`, `[{}]`,
		`{}`, `{"a":null}`, `{"a":1}`, `{"A":1}`, `{"a":"1"}`, `{"b":1}`, `{"":1}`, `{"a":1,"b":2}`, `{"a":2,"b":1}`, `{"a":{"b":1}}`,
		`{"a":{},"b":1}`, `{"a":{"b":1},"c":2}`, `{"a":{"b":1,"c":2}}`, `{"a":[]}`, `{"a":{}}`,
		// These are taken as bytes.
		`{"a":1,"a":1}`, `{"a":1, "a":1}`, `{"a":1,"A":1}`, `{"A":1,"a":1}`, `{"k":1,"` + "\u212a" + `":1}`, `{"\u0061":1,"a":1}`,
		`"\ud800"`, `"\uD800"`, `"\udc00\ud800"`, `"\ud800\u0061"`, `"\ud800a"`, `"\ud800a\udc00"`, `"\ufffda\ufffd"`, `"\ud800\n"`, `"\ud800\ud800\udc00"`, `"\ufffd"`, "\"\xff\"", "\"\xed\xa0\x80\"",
		strings.Repeat("[", 101) + strings.Repeat("]", 101), strings.Repeat("[", 101) + " " + strings.Repeat("]", 101),
		`{`, `{}{}`, `{} `, "\ufeff{}", `01`, `'a'`, `{a:1}`, `[1,]`, "\"\n\"", `NaN`,
	}
	seen := map[[sha256.Size]byte]string{}
	for _, text := range texts {
		s := sumJSON(jsonType, text, nil)
		if other, taken := seen[s]; taken && !(text == `{} ` && other == `{}`) {
			t.Errorf("%q and %q have the same hash", other, text)
		}
		seen[s] = text
	}
	for _, contentType := range []string{"", "text/json", "application/jsonp", "application/json-seq", "application/x+jsonl", "text/plain"} {
		if sumJSON(contentType, `{"a":1}`, nil) == sumJSON(contentType, `{ "a":1}`, nil) {
			t.Errorf("%s is taken as JSON", contentType)
		}
		if sumJSON(contentType, `{}`, nil) != sum(contentType, []byte(`{}`)) {
			t.Errorf("%s is not hashed as its bytes", contentType)
		}
	}
	if sumJSON(jsonType, `{}`, nil) == sumJSON("application/vnd.shop+json", `{}`, nil) {
		t.Error("the media type does not count")
	}
	if deepest := strings.Repeat("[", 100) + strings.Repeat("]", 100); sumJSON(jsonType, deepest, nil) != sumJSON(jsonType, " "+deepest, nil) {
		t.Error("100 levels are taken as bytes")
	}
}

// What the pointers do not lead to counts.
func TestJSONNotIgnored(t *testing.T) {
	t.Parallel()
	for pointer, texts := range map[string][2]string{
		"/a":   {`{"b":{"a":1}}`, `{"b":{"a":2}}`},
		"/A":   {`{"a":1}`, `{"a":2}`},
		"/a/b": {`{"a":1}`, `{"a":2}`},
		"/00":  {`[1]`, `[2]`},
		"/-":   {`[1]`, `[2]`},
		"/+0":  {`[1]`, `[2]`},
		"/0":   {`[[1],2]`, `[[1],3]`},
		"/":    {`{"a":1}`, `{"a":2}`},
		"/x":   {`{"x":1,"X":2}`, `{"x":3,"X":2}`}, // taken as bytes: which of them would be ignored?
		"/y":   {`"y"`, `"z"`},
	} {
		ignored := pointers(t, pointer)
		if sumJSON(jsonType, texts[0], ignored) == sumJSON(jsonType, texts[1], ignored) {
			t.Errorf("%s: %s and %s have the same hash", pointer, texts[0], texts[1])
		}
	}
}

func TestParsePointers(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "a", "a/b", "#/a", "/~", "/~2", "/a~", "/~~0", "/\xff"} {
		if _, err := canonical.ParsePointers([]string{"/a", bad}); err == nil || !strings.Contains(err.Error(), strconv.Quote(bad)) {
			t.Errorf("%q: error %v, want one that names it", bad, err)
		}
	}
	if _, err := canonical.ParsePointers(nil); err != nil {
		t.Error(err)
	}
}

// A raw body is never encoded like a JSON text, whatever a client sends.
func TestJSONIsNotRaw(t *testing.T) {
	t.Parallel()
	said, ok := canonical.AppendJSON(append(canonical.AppendPart(nil, jsonType), "json"...), []byte(`{"a":[1]}`), nil)
	if !ok {
		t.Fatal("it is taken as bytes")
	}
	for from := range said {
		if bytes.Equal(canonical.Stream(jsonType, said[from:]), said) {
			t.Fatalf("the raw body %q is encoded as %q", said[from:], said)
		}
	}
}

// decode returns what encoding/json reads.
func decode(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("more follows")
	}
	return v, nil
}

// decoded reads an encoding of AppendJSON, so it can only be wrong if that is not injective.
func decoded(t *testing.T, b []byte) (v any, rest []byte) {
	part := func() string {
		n, after, ok := bytes.Cut(b, []byte(":"))
		size, err := strconv.Atoi(string(n))
		if !ok || err != nil || size > len(after) {
			t.Fatalf("no part: %q", b)
		}
		b = after[size:]
		return string(after[:size])
	}
	kind := b[0]
	b = b[1:]
	switch kind {
	case 'n':
		return nil, b
	case 't', 'f':
		return kind == 't', b
	case '#':
		return json.Number(part()), b
	case '"':
		return part(), b
	case '[':
		list := []any{}
		for b[0] != ']' {
			v, b = decoded(t, b)
			list = append(list, v)
		}
		return list, b[1:]
	case '{':
		object := map[string]any{}
		for b[0] != '}' {
			name := part()
			object[name], b = decoded(t, b)
		}
		return object, b[1:]
	}
	t.Fatalf("no kind: %q", kind)
	return nil, nil
}

// respell writes a value in another way: other white space and escapes, the members in another order.
func respell(b []byte, v any, rnd *rand.Rand) []byte {
	space := func() { b = append(b, []string{"", " ", "\n", "\t \r"}[rnd.IntN(4)]...) }
	space()
	switch v := v.(type) {
	case string:
		b = append(b, '"')
		for _, r := range v {
			switch {
			case r > 0xffff && rnd.IntN(2) == 0:
				b = fmt.Appendf(b, `\u%04x\u%04X`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
			case r <= 0xffff && (r < ' ' || r == '"' || r == '\\' || rnd.IntN(3) == 0):
				b = fmt.Appendf(b, `\u%04x`, r)
			default:
				b = utf8.AppendRune(b, r)
			}
		}
		b = append(b, '"')
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = respell(b, e, rnd)
		}
		b = append(b, ']')
	case map[string]any:
		b = append(b, '{')
		first := true
		for name, e := range v { // in an order that differs each time
			if !first {
				b = append(b, ',')
			}
			first = false
			b = respell(b, name, rnd)
			b = append(b, ':')
			b = respell(b, e, rnd)
		}
		b = append(b, '}')
	default:
		literal, _ := json.Marshal(v)
		b = append(b, literal...)
	}
	space()
	return b
}

// isClear reports whether all parsers read the text alike, as far as the tokens of encoding/json show.
func isClear(text []byte) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	type object struct{ names []string }
	var open []*object // nil for an array
	isName := false
	for {
		token, err := d.Token()
		if err != nil {
			return err == io.EOF
		}
		delim, _ := token.(json.Delim)
		switch top := len(open) - 1; {
		case delim == '}', delim == ']':
			open = open[:top]
		case isName:
			name := token.(string)
			if slices.ContainsFunc(open[top].names, func(other string) bool { return strings.EqualFold(name, other) }) {
				return false
			}
			open[top].names = append(open[top].names, name)
			isName = false
			continue
		case delim == '{':
			open = append(open, &object{})
		case delim == '[':
			open = append(open, nil)
		}
		if len(open) > 100 {
			return false
		}
		isName = len(open) > 0 && open[len(open)-1] != nil
	}
}

// FuzzJSON takes any text. If it is read at all, its encoding can be decoded to what encoding/json reads, and the same
// value, spelled in another way, has the same encoding. A text that is not read has the hash of its bytes.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"b":[1,2.50,-0,1e9],"a":{"é":"\u00e9\ud83d\ude00","":null},"c":[true,false,[],{}]}`, `{"a":1,"A":2}`, `"\ud800"`,
		`{"\u017f":1,"S":2}`, `[[[[{"z":1,"y":{"x":1,"w":2}}]]]]`, ` "\\\"\/\b\f\n\r\t" `, `{"a":1,"a":1}`, "\"\xff\"", `1 2`, `1e999`, ``,
		strings.Repeat(`{"a":`, 101) + "1" + strings.Repeat("}", 101),
	} {
		f.Add([]byte(seed), uint64(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		kept := bytes.Clone(text)
		said, ok := canonical.AppendJSON(nil, text, nil)
		if !bytes.Equal(text, kept) {
			t.Fatal("the text was changed")
		}
		want, err := decode(text)
		switch {
		case ok && (err != nil || !isClear(text)):
			t.Fatalf("%q is read, %v", text, err)
		case !ok && err == nil && utf8.Valid(text) && isClear(text) && !bytes.Contains(fmt.Append(nil, want), []byte("\ufffd")):
			t.Fatalf("%q is not read", text)
		case !ok:
			if canonical.SumJSON(nil, jsonType, text, nil) != sum(jsonType, text) {
				t.Fatalf("%q is not hashed as bytes", text)
			}
			return
		}
		got, rest := decoded(t, said)
		if !reflect.DeepEqual(got, want) || len(rest) > 0 {
			t.Fatalf("%q is encoded as %q: %v and %q are left, want %v", text, said, got, rest, want)
		}
		other := respell(nil, want, rand.New(rand.NewPCG(seed, 0)))
		if again, ok := canonical.AppendJSON(nil, other, nil); !ok || !bytes.Equal(again, said) {
			t.Fatalf("%q is encoded as %q, and %q as %q (%t)", text, said, other, again, ok)
		}
		if sum(jsonType, text) == canonical.SumJSON(nil, jsonType, text, nil) {
			t.Fatalf("%q has the hash of its bytes", text)
		}
	})
}

// hostileJSON are bodies of about 1 MiB that cost most.
func hostileJSON() map[string]string {
	const size = 1 << 20
	// At each level a small member stands behind a large one that comes after it in the order.
	moved := strings.Repeat(`{"b":`, 99) + `"` + strings.Repeat("x", size) + `"` + strings.Repeat(`,"a":0}`, 99)
	var names, similar strings.Builder
	for i := range size / 12 {
		fmt.Fprintf(&names, `,"%x":0`, (i*7919)%(size/12))
	}
	for i := range size / 1024 {
		fmt.Fprintf(&similar, `,"%s%x":0`, strings.Repeat("x", 1010), (i*7919)%1024)
	}
	return map[string]string{
		"numbers":       "[" + strings.Repeat("0,", size/2) + "0]",
		"objects":       "[" + strings.Repeat("{},", size/3) + "{}]",
		"nested":        "[" + strings.Repeat(strings.Repeat("[", 99)+strings.Repeat("]", 99)+",", size/199) + "0]",
		"moved":         moved,
		"members":       "{" + names.String()[1:] + "}",
		"similar names": "{" + similar.String()[1:] + "}",
		"escapes":       `"` + strings.Repeat(`\u0061`, size/6) + `"`,
		"short escapes": `"` + strings.Repeat(`\n`, size/2) + `\u0061"`,
		"a payment":     `{"amount":1250,"currency":"EUR","customer":{"id":"c_17","name":"Ann"},"items":[{"sku":"a-1","n":2},{"sku":"b-7","n":1}]}`,
	}
}

func TestJSONMemory(t *testing.T) {
	for name, text := range hostileJSON() {
		body := []byte(text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		canonical.SumJSON(nil, jsonType, body, nil)
		runtime.ReadMemStats(&after)
		if got := int(after.TotalAlloc - before.TotalAlloc); got > 96*len(body)+4096 {
			t.Errorf("%s: %d bytes allocated for a body of %d", name, got, len(body))
		}
	}
}

func BenchmarkJSON(b *testing.B) {
	for name, text := range hostileJSON() {
		b.Run(name, func(b *testing.B) {
			body := []byte(text)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				canonical.SumJSON(nil, jsonType, body, nil)
			}
		})
	}
}
