package response_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"reflect"
	"runtime"
	"testing"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// some returns a response with one of everything.
func some(body string) *response.Response {
	return &response.Response{
		Status: 201,
		Header: []response.Change{
			{Op: response.OpSet, Name: "Location", Values: []string{"/payments/1"}},
			{Op: response.OpSet, Name: "Content-Type"},
			{Op: response.OpAdd, Name: "Vary", Values: []string{"Accept", "Origin"}},
			{Op: response.OpDelete, Name: "X-Powered-By"},
		},
		Trailer: []response.Change{{Op: response.OpSet, Name: "X-Checksum", Values: []string{"abc"}}},
		Body:    []byte(body),
	}
}

// payload returns the payload of a response in one piece.
func payload(t testing.TB, r *response.Response) []byte {
	t.Helper()
	head, body, ok := r.Payload()
	if !ok {
		t.Fatal("the response has no payload")
	}
	return append(bytes.Clone(head), body...)
}

// A response is replayed for as long as its retention lasts, by whatever version runs then: what is written must stay
// what it was.
func TestPayloadFormat(t *testing.T) {
	t.Parallel()
	const want = "c901" + "5d" + // 201, 93 bytes of header and trailer
		"04" + "00084c6f636174696f6e010b2f7061796d656e74732f31" + "000c436f6e74656e742d5479706500" +
		"0104566172790206416363657074064f726967696e" + "020c582d506f77657265642d427900" +
		"01" + "000a582d436865636b73756d0103616263" +
		"626f6479"
	b := payload(t, some("body"))
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got, err := response.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	again := some("body")
	if got.Status != 201 || string(got.Body) != "body" || !reflect.DeepEqual(got.Header, again.Header) || !reflect.DeepEqual(got.Trailer, again.Trailer) {
		t.Errorf("%+v, want %+v", got, again)
	}
	_ = append(got.Header[0].Values, "another") // as http.Header.Add does
	if v := got.Header[2].Values[0]; v != "Accept" {
		t.Errorf("a value that is added to Location is one of Vary: %q", v)
	}
	for n := range len(b) - len("body") {
		wantMalformed(t, "cut short", b[:n])
	}
}

// wantMalformed checks that b is not read, with an error that a caller knows.
func wantMalformed(t *testing.T, what string, b []byte) {
	t.Helper()
	if _, err := response.Decode(b); !errors.Is(err, record.ErrUnreadable) {
		t.Errorf("%s: %x: %v, want ErrUnreadable", what, b, err)
	}
}

func TestMalformedPayload(t *testing.T) {
	t.Parallel()
	for what, b := range map[string]string{
		"a status of 99":              "\x63\x02\x00\x00",
		"a status of 1000":            "\xe8\x07\x02\x00\x00",
		"no status":                   "\x00\x02\x00\x00",
		"a status in a longer form":   "\xc9\x81\x00\x02\x00\x00",
		"a header that is too long":   "\xc9\x01\x7f\x00\x00",
		"a rest behind the trailer":   "\xc9\x01\x03\x00\x00\x00",
		"no trailer":                  "\xc9\x01\x01\x00",
		"an operation of later":       "\xc9\x01\x05\x01\x03\x00\x00\x00",
		"more changes than there are": "\xc9\x01\x02\x02\x00",
		"a name that is too long":     "\xc9\x01\x05\x01\x00\x09a\x00",
		"a length in a longer form":   "\xc9\x01\x82\x00\x00\x00",
	} {
		wantMalformed(t, what, []byte(b))
	}
	for _, right := range []string{"\x64\x02\x00\x00", "\xe7\x07\x02\x00\x00body", "\xc9\x01\x05\x01\x02\x00\x00\x00"} {
		if _, err := response.Decode([]byte(right)); err != nil {
			t.Errorf("%x: %v", right, err)
		}
	}
}

// The payload of a tombstone has the status, which may be unknown, and no response.
func TestTombstone(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{0: "00020000", 201: "c901020000", 999: "e707020000"} {
		b := response.Tombstone(status)
		if got := hex.EncodeToString(b); got != want || response.Status(b) != status {
			t.Errorf("%d: %s, %d; want %s", status, got, response.Status(b), want)
		}
	}
	for _, malformed := range []string{"", "\xe8\x07\x02\x00\x00", "\x80"} {
		if got := response.Status([]byte(malformed)); got != 0 {
			t.Errorf("%x: %d, want 0", malformed, got)
		}
	}
}

// A response with more names and values than a reader takes has no payload.
func TestPayloadOfManyFields(t *testing.T) {
	t.Parallel()
	for values, want := range map[int]bool{4_999: true, 5_000: false} {
		list := []response.Change{{Op: response.OpSet, Name: "X", Values: make([]string, values)}}
		head, body, ok := (&response.Response{Status: 200, Header: list, Trailer: list}).Payload()
		if ok != want {
			t.Errorf("%d values: %v, want %v", values, ok, want)
		}
		if ok {
			if _, err := response.Decode(append(head, body...)); err != nil {
				t.Errorf("%d values: %v", values, err)
			}
		}
	}
}

// A forged payload with more fields than any header has costs no memory, and is not read.
func TestForgedManyFields(t *testing.T) {
	const fields = 300_000
	many := binary.AppendUvarint(nil, fields)
	for range fields {
		many = append(many, 0, 0, 0) // set, without a name or values
	}
	one := append([]byte{1, 0, 0}, binary.AppendUvarint(nil, fields)...) // one, with so many values
	one = append(one, make([]byte, fields)...)
	for name, header := range map[string][]byte{"changes": many, "values": one} {
		forged := binary.AppendUvarint([]byte{0xc9, 1}, uint64(len(header)+1)) // status 201
		forged = append(append(forged, header...), 0)                          // no trailer
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := response.Decode(forged); err == nil {
			t.Errorf("many %s: it was read", name)
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 4<<20 {
			t.Errorf("many %s: %d bytes of memory for a payload of %d", name, got, len(forged))
		}
	}
}

// FuzzDecode feeds the decoder of payloads. What it takes it must read whole: encoded again, it has the same bytes.
func FuzzDecode(f *testing.F) {
	f.Add(payload(f, some("body")))
	f.Add(payload(f, some("")))
	f.Add(response.Tombstone(0))
	f.Add(response.Tombstone(201))
	f.Add([]byte("\xc9\x01\x7f\x00\x00"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := response.Decode(b)
		if err != nil {
			wantMalformed(t, "again", b)
			return
		}
		again := payload(t, &r)
		if !bytes.Equal(again, b) {
			t.Errorf("%x was read as %x", b, again)
		}
		if response.Status(b) != r.Status {
			t.Errorf("status %d, want %d", response.Status(b), r.Status)
		}
	})
}
