package canonical_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"math/big"
	"runtime"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/canonical"
)

func sumValues(body string) [sha256.Size]byte {
	return canonical.SumValues([]byte("fields"), []byte(body))
}

func TestValuesSame(t *testing.T) {
	t.Parallel()
	for name, texts := range map[string][]string{
		"one":             {"1", "1.0", "1.000", "1e0", "1E0", "1e+0", "1e-0", "10e-1", "0.1e1", "0.01e2", "1000e-3", "1e00", " 1\n"},
		"zero":            {"0", "-0", "0.0", "-0.00", "0e5", "0e-5", "0e999999999999999999999999999999"},
		"a fraction":      {"0.25", "25e-2", "2.5e-1", "0.250", "0.0025e2"},
		"negative":        {"-12.5", "-125e-1", "-12.50"},
		"a long integer":  {"90071992547409930", "9007199254740993e1", "9007199254740993.0E+1"},
		"a big exponent":  {"1e999999999", "10e999999998", "1.0e999999999"},
		"a tiny one":      {"1e-999999999", "0.1e-999999998"},
		"inside":          {`{"a":[1.0,{"b":2e1}]}`, `{ "a":[1,{"b":20}] }`},
		"order and space": {`{"a":1,"b":null}`, `{"b":null, "a":1.0}`},
	} {
		for _, text := range texts[1:] {
			if sumValues(text) != sumValues(texts[0]) {
				t.Errorf("%s: %s and %s have different hashes", name, texts[0], text)
			}
		}
	}
}

func TestValuesDifferent(t *testing.T) {
	t.Parallel()
	seen := map[[sha256.Size]byte]string{}
	for _, text := range []string{
		``, ` `, `null`, `{}`, `{"a":null}`, `{"a":1}`, `{"a":-1}`, `{"a":"1"}`, `{"a":"1.0"}`, `{"a":1.1}`, `{"a":10}`, `[1,2]`, `[2,1]`, `[12]`,
		`9007199254740992`, `9007199254740993`, `0.1`, `0.10000000000000000001`, `1e999999999`, `1e999999998`, `1e-999999999`,
		// These are taken as bytes.
		`1e9999999999999999`, `10e9999999999999998`, `1e-9999999999999999`, `{"a":1,"A":2}`, `{"A":2,"a":1}`, `{"a":1,"a":1}`, `{"a":1.0,"a":1}`,
		`"\ud800"`, `"\uD800"`, `{`, `a=1`, `a=1.0`, `01`, `1.`, `.5`, `+1`, `NaN`, "\xff",
	} {
		s := sumValues(text)
		if other, taken := seen[s]; taken {
			t.Errorf("%q and %q have the same hash", other, text)
		}
		seen[s] = text
	}
	if canonical.SumValues([]byte("a"), []byte("{}")) == canonical.SumValues([]byte("b"), []byte("{}")) {
		t.Error("the fields do not count")
	}
}

// FuzzDecimal compares two numbers. They have the same hash if and only if they are the same number.
func FuzzDecimal(f *testing.F) {
	for _, pair := range [][2]string{
		{"1", "1.0"}, {"-0", "0e1"}, {"0.1", "1e-1"}, {"1e5", "100000"}, {"12.5", "125E-1"}, {"1e308", "1e309"}, {"10", "1"}, {"0.10", "0.01"},
		{"123456789012345678901234567890", "123456789012345678901234567891"}, {"1e999999999999999999", "1"},
	} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, okX := rational(a)
		y, okY := rational(b)
		if okX && okY && (sumValues(a) == sumValues(b)) != (x.Cmp(y) == 0) {
			t.Fatalf("%s and %s: same hash %t", a, b, sumValues(a) == sumValues(b))
		}
	})
}

// rational returns the value of a JSON number whose exponent is small enough to be expanded.
func rational(text string) (*big.Rat, bool) {
	var n json.Number
	if json.Unmarshal([]byte(text), &n) != nil || text[0] == '"' || text == "null" {
		return nil, false
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 && len(strings.TrimLeft(text[i+1:], "+-0")) > 3 {
		return nil, false
	}
	return new(big.Rat).SetString(strings.TrimSpace(text))
}

// FuzzValues takes any body. It is unchanged, and one with other white space at its end is the same if it is JSON.
func FuzzValues(f *testing.F) {
	for _, seed := range []string{`{"a":[1.50,-0e7,{"b":1e-20}]}`, `1e9999999999999999`, `[`, `{"a":1,"A":1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		kept := bytes.Clone(body)
		isSame := sumValues(string(body)) == sumValues(string(body)+"\n")
		asBytes := canonical.SumValues(nil, body) == canonical.SumBytes(nil, body)
		if isSame == asBytes {
			t.Fatalf("%q: as bytes %t, the same with a line end %t", body, asBytes, isSame)
		}
		if !bytes.Equal(body, kept) {
			t.Fatal("the body was changed")
		}
	})
}

// fault: a number with a huge exponent -> its decimal is not expanded
func TestValuesMemory(t *testing.T) {
	hostile := hostileJSON()
	hostile["exponents"] = "[" + strings.Repeat("1e999999999,", 1<<20/12) + "0]"
	hostile["a long number"] = strings.Repeat("1", 1<<20) + "." + strings.Repeat("0", 1<<20) + "e-999999999"
	for name, text := range hostile {
		body := []byte(text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		canonical.SumValues(nil, body)
		runtime.ReadMemStats(&after)
		if got := int(after.TotalAlloc - before.TotalAlloc); got > 96*len(body)+4096 {
			t.Errorf("%s: %d bytes allocated for a body of %d", name, got, len(body))
		}
	}
}
