package canonical_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"mime/multipart"
	"net/textproto"
	"runtime"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/canonical"
)

func TestMediaType(t *testing.T) {
	t.Parallel()
	for contentType, want := range map[string]string{
		"":                                "",
		"application/json":                "application/json",
		" Application/JSON ; charset=x":   "application/json",
		"text/plain; charset":             "text/plain",
		"text/plain; a=1; a=2":            "text/plain",
		"nonsense, more":                  "nonsense, more",
		";":                               "",
		`multipart/form-data; boundary=x`: "multipart/form-data",
	} {
		if got := canonical.MediaType(contentType); got != want {
			t.Errorf("MediaType(%q) = %q, want %q", contentType, got, want)
		}
	}
}

const form = "multipart/form-data; boundary="

// conformance: 30, 31
func TestBodySame(t *testing.T) {
	t.Parallel()
	const (
		part = "\r\nA: 1\r\nB: 2\r\n\r\nx\r\n"
		want = "--b" + part + "--b--\r\n"
	)
	cases := []struct{ name, typeA, a, typeB, b string }{
		{"type parameters", "text/plain", "x", "Text/Plain; charset=utf-8", "x"},
		{"broken type parameters", "text/plain", "x", "text/plain; charset", "x"},
		{"another boundary", form + "b", want, form + "c", "--c" + part + "--c--\r\n"},
		{"a quoted boundary", form + "b", want, form + `"c d"`, "--c d" + part + "--c d--\r\n"},
		{"the boundary's case in the type", form + "b", want, "MULTIPART/form-data; BOUNDARY=b", want},
		{"a preamble", form + "b", want, form + "b", "hello\r\n" + want},
		{"an epilogue", form + "b", want, form + "b", want + "bye"},
		{"no line end at the end", form + "b", want, form + "b", strings.TrimSuffix(want, "\r\n")},
		{"the case and order of header fields", form + "b", want, form + "b", "--b\r\nb: 2\r\na: 1\r\n\r\nx\r\n--b--\r\n"},
		{"line ends", form + "b", want, form + "b", strings.ReplaceAll(want, "\r\n", "\n")},
		{"no parts", form + "b", "--b--\r\n", form + "c", "--c--\r\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if sum(c.typeA, []byte(c.a)) != sum(c.typeB, []byte(c.b)) {
				t.Error("the hashes differ")
			}
		})
	}
}

func TestBodyDifferent(t *testing.T) {
	t.Parallel()
	bodies := []struct{ contentType, body string }{
		{"", ""},
		{"", "x"},
		{"x", ""},
		{"text/plain", "x"},
		{"text/html", "x"},
		{"text/plainx", ""},
		{"multipart/form-data", "--b\r\nA: 1\r\n\r\nx\r\n--b--\r\n"},
		{"multipart/mixed", "--b\r\nA: 1\r\n\r\nx\r\n--b--\r\n"},
		{"multipart/mixed; boundary=b", "--b\r\nA: 1\r\n\r\nx\r\n--b--\r\n"},
		{form + "b", ""},
		{form + "b", "--b--\r\n"},
		{form + "b", "--b\r\n\r\n\r\n--b--\r\n"},
		{form + "b", "--b\r\n\r\n\r\n--b\r\n\r\n\r\n--b--\r\n"},
		{form + "b", "--b\r\nA: 1\r\n\r\nx\r\n--b--\r\n"},
		{form + "b", "--b\r\nA: 1\r\n\r\ny\r\n--b--\r\n"},
		{form + "b", "--b\r\nA: 1\r\n\r\nx\r\n\r\n--b--\r\n"},
		{form + "b", "--b\r\nA: 2\r\n\r\nx\r\n--b--\r\n"},
		{form + "b", "--b\r\nB: 1\r\n\r\nx\r\n--b--\r\n"},
		{form + "b", "--b\r\n\r\nx\r\n--b--\r\n"},
		{form + "b", "--b\r\nA: 1\r\nA: 2\r\n\r\nx\r\n--b--\r\n"},
		{form + "b", "--b\r\nA: 2\r\nA: 1\r\n\r\nx\r\n--b--\r\n"},
		{form + "b", "--b\r\nA: 1\r\nB: 2\r\n\r\nx\r\n--b--\r\n"},
		{form + "b", "--b\r\nA: 1\r\n\r\nx\r\n--b\r\nB: 2\r\n\r\n\r\n--b--\r\n"},
		{form + "b", "--b\r\nA: 1\r\n\r\n\r\n--b\r\nB: 2\r\n\r\nx\r\n--b--\r\n"},
		{form + "b", "--b\r\nB: 2\r\n\r\nx\r\n--b\r\nA: 1\r\n\r\n\r\n--b--\r\n"},
		{form + "b", "--b\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=78\r\n--b--\r\n"},
		{form + "b", "--b\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nx\r\n--b--\r\n"},

		// Malformed bodies are hashed as raw bytes.
		{form + "b", "--b\r\nA: 1\r\n\r\nx\r\n"},
		{form + "b", "--b\r\nA: 1\r\n\r\nx\r\n--b"},
		{form + "b", "--b\r\nA: 1\r\n\r\nx\r\n--b\r\n"},
		{form + "b", "--c\r\nA: 1\r\n\r\nx\r\n--c--\r\n"},
		{form + "b", "--b\r\nnonsense\r\n\r\nx\r\n--b--\r\n"},
		{form + "b; boundary=c", "--b\r\nA: 1\r\n\r\ntwo\r\n--b--\r\n"},
		{form + `""`, "--\r\nA: 1\r\n\r\nx\r\n----\r\n"},
		{form + strings.Repeat("b", 71), "--" + strings.Repeat("b", 71) + "--\r\n"},
	}
	seen := map[[sha256.Size]byte]int{}
	for i, b := range bodies {
		s := sum(b.contentType, []byte(b.body))
		if other, taken := seen[s]; taken {
			t.Errorf("%q and %q have the same hash", bodies[other], b)
		}
		seen[s] = i
	}
}

// No client can send a raw body that is encoded like a parsed one: neither the encoding of a parsed body nor any suffix
// of it, sent as a raw body, has that encoding again.
func TestBodyRawIsNotParsed(t *testing.T) {
	t.Parallel()
	const body = "--b\r\nA: 1\r\n\r\nx\r\n--b--\r\n"
	stream := canonical.Stream(form+"b", []byte(body))
	for from := range stream {
		raw := canonical.Stream("multipart/form-data", stream[from:])
		if bytes.Equal(raw, stream) {
			t.Fatalf("the raw body %x is encoded as %x, like a parsed one", stream[from:], stream)
		}
	}
}

// A body that is truncated anywhere is a different body.
func TestBodyTruncated(t *testing.T) {
	t.Parallel()
	for _, newline := range []string{"\r\n", "\n"} {
		body := strings.ReplaceAll("--b\nA: 1\nB: 2\n\nx\n--b\nA: 2\n\n\n--b--", "\n", newline)
		seen := map[[sha256.Size]byte]int{}
		for n := range len(body) + 1 {
			s := sum(form+"b", []byte(body[:n]))
			if other, taken := seen[s]; taken {
				t.Errorf("%q and %q have the same hash", body[:other], body[:n])
			}
			seen[s] = n
		}
		if sum(form+"b", []byte(body)) != sum(form+"b", []byte(body+newline)) {
			t.Errorf("%q: the last line end makes a difference", body)
		}
	}
}

func TestBodyMemory(t *testing.T) {
	const size = 4 << 20
	hostile := map[string]string{
		"one part":       "--b\r\n\r\n" + strings.Repeat("x", size) + "\r\n--b--\r\n",
		"half delimiter": "--b\r\n\r\n" + strings.Repeat("\r\n--", size/4) + "\r\n--b--\r\n",
		"long line":      strings.Repeat("x", size) + "\r\n--b--\r\n",
		"long header":    "--b\r\nA: " + strings.Repeat("x", size) + "\r\n\r\n\r\n--b--\r\n",
		"many fields":    "--b\r\n" + strings.Repeat("A:\r\n", size/4) + "\r\n\r\n--b--\r\n",
	}
	for name, body := range hostile {
		b := []byte(body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		sum(form+"b", b)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 16*size {
			t.Errorf("%s: %d bytes allocated for a body of %d", name, got, len(b))
		}
	}
}

// FuzzBody hashes any body with any type, and then the same bytes as the content of a form. The form has the same hash
// with two boundaries, and another with one byte more.
func FuzzBody(f *testing.F) {
	f.Add("text/plain", "name", "value", []byte("body"))
	f.Add(form+"b", "A", "1", []byte("--b\r\nA: 1\r\n\r\nx\r\n--b--\r\n"))
	f.Add(form+"b", "a", "", []byte("--b\nA: 1\n\nx\n--b--"))
	f.Add(form+"b", "", "\"", []byte("--b\r\n\r\n\r\n--b\r\n"))
	f.Add("multipart/mixed; boundary=\"b b\"", "file\"name", "\\", []byte("pre\r\n--b b  \r\n\r\n\r\n--b b--\r\npost"))
	f.Add("multipart/; boundary", "x", "y", []byte{0, 0xff, '\r', '\n', '-', '-'})
	f.Fuzz(func(t *testing.T, contentType, name, value string, body []byte) {
		kept := bytes.Clone(body)
		if sum(contentType, body) != sum(contentType, kept) {
			t.Fatal("the same body has two hashes")
		}
		if !bytes.Equal(body, kept) {
			t.Fatal("the body was changed")
		}

		// The boundary is a hash of the content, so the content does not contain it.
		digest := sha256.Sum256(append([]byte(name+value), body...))
		random := hex.EncodeToString(digest[:])
		typeA, a := encode(t, random[:40], name, value, body)
		typeB, b := encode(t, random[24:], name, value, body)
		// A control character in the name makes the header malformed. Then the bodies are hashed as raw bytes.
		parsed := parses(random[:40], a)
		if same := sum(typeA, a) == sum(typeB, b); same != parsed {
			t.Fatalf("parsed = %t, but same hash with two boundaries = %t: %q and %q", parsed, same, a, b)
		}
		typeC, c := encode(t, random[:40], name, value, append(kept, 'x'))
		if sum(typeA, a) == sum(typeC, c) {
			t.Fatalf("two bodies, one hash: %q and %q", a, c)
		}
		if same := sum(typeA, a) == sum("multipart/form-data", a); same == parsed {
			t.Fatalf("parsed = %t, but same hash as raw = %t: %q", parsed, same, a)
		}
	})
}

// parses reports whether the body parses to its closing delimiter.
func parses(boundary string, body []byte) bool {
	parts := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		_, err := parts.NextRawPart()
		if err != nil {
			return err == io.EOF
		}
	}
}

// encode returns a form with a field and a file.
func encode(t *testing.T, boundary, name, value string, content []byte) (contentType string, body []byte) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(boundary); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteField(name, value); err != nil {
		t.Fatal(err)
	}
	header := textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf("form-data; name=%q; filename=f", name)}}
	p, err := w.CreatePart(header)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), b.Bytes()
}

func BenchmarkBody(b *testing.B) {
	big := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct{ contentType, body string }{
		"raw 1 MiB":       {"application/json", big},
		"multipart 1 MiB": {form + "b", "--b\r\n\r\n" + big + "\r\n--b--\r\n"},
		"hostile 1 MiB":   {form + "b", strings.Repeat("--b\r\n\r\n\r\n", 1<<20/9) + "--b--\r\n"},
		"half delimiters": {form + strings.Repeat("b", 70), "--" + strings.Repeat("b", 70) + "\r\n\r\n" + strings.Repeat("\r\n--"+strings.Repeat("b", 69), 1<<20/73)},
	} {
		b.Run(name, func(b *testing.B) {
			body := []byte(c.body)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				sum(c.contentType, body)
			}
		})
	}
}
