package record_test

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/record"
)

const someTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// A later release's fields in a record's extension are skipped, and what is no list of fields is ignored.
func TestExtension(t *testing.T) {
	t.Parallel()
	field, err := hex.DecodeString("0119" + "0af7651916cd43dd8448eb211c80319c" + "b7ad6b7169203331" + "01")
	if err != nil {
		t.Fatal(err)
	}
	c := new(record.Codec)
	for name, test := range map[string]struct {
		extension, trace string
		unknown          bool
	}{
		"empty":                {"", "", false},
		"a trace":              {string(field), someTrace, false},
		"unknown":              {"\x03\x00", "", true},
		"unknown, and later":   {"\x03\x02ab", "", true},
		"both":                 {string(field) + "\x03\x00", someTrace, true},
		"a later field before": {"\x09\x01a" + string(field), someTrace, false},
		"a later field after":  {string(field) + "\x09\x00", someTrace, false},
		"another length":       {"\x01\x02ab", "", false},
		"no trace-id":          {"\x01\x19" + strings.Repeat("\x00", 16) + strings.Repeat("\x01", 9), "", false},
		"no parent-id":         {"\x01\x19" + strings.Repeat("\x01", 16) + strings.Repeat("\x00", 8) + "\x01", "", false},
		"cut off":              {string(field[:20]), "", false},
		"a byte too few":       {"\x03\x01", "", false},
		"no list":              {"a", "", false},
		"no list after it":     {string(field) + "\x07", someTrace, false},
		"tag 0 ends the list":  {"\x00\x00" + string(field), "", false},
	} {
		content := append(make([]byte, extensionAt), byte(len(test.extension)))
		r, err := c.Decode(storageKey, forge(c, 0, append(content, test.extension+"payload"...)))
		if err != nil || r.Trace.String() != test.trace || r.Unknown != test.unknown || !bytes.Equal(r.Body, []byte("payload")) {
			t.Errorf("%s: %+v, %q, %v; want %q, %v", name, r, r.Trace.String(), err, test.trace, test.unknown)
		}
	}
}

func TestParseTrace(t *testing.T) {
	t.Parallel()
	for _, right := range []string{someTrace, "00-00000000000000000000000000000001-0000000000000001-00"} {
		if got := record.ParseTrace(right).String(); got != right {
			t.Errorf("%q for %q", got, right)
		}
	}
	for _, wrong := range []string{
		"", "00", someTrace[:54], someTrace + "-", strings.ToUpper(someTrace), "01" + someTrace[2:], "ff" + someTrace[2:],
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
		"00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333g-01",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331_01", strings.Repeat("x", 55),
	} {
		if got := record.ParseTrace(wrong); got != (record.Trace{}) || got.String() != "" {
			t.Errorf("%q: %v, want none", wrong, got)
		}
	}
}

// What is stored of a traceparent is what was given, or nothing.
func FuzzTrace(f *testing.F) {
	f.Add(someTrace)
	f.Add(strings.ToUpper(someTrace))
	f.Add("00-00000000000000000000000000000000-0000000000000000-00")
	f.Add("")
	f.Fuzz(func(t *testing.T, traceparent string) {
		if got := record.ParseTrace(traceparent).String(); got != "" && got != traceparent {
			t.Errorf("%q was stored for %q", got, traceparent)
		}
	})
}
