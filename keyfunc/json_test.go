package keyfunc_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/keyfunc"
)

const jsonType = "application/json; charset=utf-8"

// Where a pointer leads, and what is not JSON. TestSources has the strings.
func TestJSON(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	digits := strings.Repeat("7", 255)
	for _, c := range []struct{ pointer, body, want string }{
		{"/id", " \r\n\t{ \"id\" : \"evt_1\" } \n", "evt_1"},
		{"/data/object/id", `{"data":{"id":"no","object":{"x":[{}],"id":"ch_1"}},"id":"no"}`, "ch_1"},
		{"/events/1/id", `{"events":[{"id":"a"},{"id":"b"},{"id":"c"}]}`, "b"},
		{"/0", `["a","b"]`, "a"},
		{"/0", `{"0":"a"}`, "a"},
		{"/i~1d/~0/~01", `{"i/d":{"~":{"~1":"a"}}}`, "a"},
		{"/", `{"":"a"}`, "a"},
		{"/id", `{"\u0069d":"a"}`, "a"},
		{"/schlüssel", `{"schlüssel":"a"}`, "a"},
		{"/id", `{"id":"a\"\\\/\u0062"}`, `a"\/b`},
		{"/id", `{"x":{"ID":"b"},"id":"a"}`, "a"}, // names that count only in their own object
		{"/id", `{"x":1,"X":2,"x":3,"id":"a"}`, "a"},
		{"/b/c", `{"a\"}{":"\\","b":{"x":"]}\\\"{","c":"a"}}`, "a"},
		{"/b/1", " {\n\"a\" :\t[ 1 ,\r\n2 ] , \"b\" : [ 3 , 4.5e+6 ] } ", "4.5e+6"},
		{"/9", `[0,-1.5E-3,true,false,null,"",{},[],{"a":[{}]},"a"]`, "a"},
		{"/id", `{"x":` + deep(9000) + `,"id":"a"}`, "a"},

		{"/id", `{"id":0}`, "0"},
		{"/id", `{"id":9}`, "9"},
		{"/id", `{"id":12345678901234567891}`, "12345678901234567891"}, // float64 cannot hold it
		{"/id", `{"id":1.0}`, "1.0"},
		{"/id", `{"id":-1E+2}`, "-1E+2"},
		{"/id", `{"id":` + digits + `}`, digits},
	} {
		r := withBody(jsonType, c.body)
		expect(t, keyfunc.JSON(c.pointer), r, c.want, nil)
		expectBody(t, r, c.body)
	}
	for _, c := range []struct{ pointer, body string }{
		{"/id", ""}, {"/id", `{}`}, {"/id", `{"ID":"a"}`}, {"/id", `{"id":null}`}, {"/data/id", `{"data":null}`},
		{"/data/id", `{"data":"id"}`}, {"/id", `"id"`}, {"/id", `["id"]`}, {"/id", `["a","b","c"]`},
		{"/1", `["a"]`}, {"/-", `["a"]`}, {"/00", `["a"]`}, {"/-1", `["a"]`},
	} {
		expect(t, keyfunc.JSON(c.pointer), withBody(jsonType, c.body), "", keyfunc.ErrMissing)
	}
	for _, c := range []struct{ pointer, body string }{
		{"/id", `{"id":["a"]}`}, {"/id", `{"id":true}`}, {"/id", `{"id":false}`}, {"/id", `{"id":` + digits + `7}`},
		{"/id", `{"id":"\ud800"}`}, // half a surrogate pair

		{"/id", `{"id":"a","\u0069d":"b"}`}, {"/id", `{"id":null,"id":"b"}`}, {"/data/id", `{"data":{},"data":{"id":"a"}}`},
		{"/id", `{"id":"a","ID":"b"}`}, {"/id", `{"Id":"b","id":"a"}`}, {"/id", `{"Id":"a","iD":"b"}`},
		{"/id", `{"id":"a","\u0049d":"b"}`}, {"/id", `{"id":"a","ID":null}`}, {"/data/id", `{"data":{"id":"a"},"Data":{}}`},
		{"/key", `{"key":"a","\u212aey":"b"}`}, // the Kelvin sign

		{"/id", ` `}, {"/id", `{"id":"evt_1"`}, {"/id", `{"id":"a"}{"id":"b"}`}, {"/id", `{"id":"a",}`},
		{"/id", "\ufeff" + `{"id":"a"}`}, {"/id", "{\"id\":\"a\xff\"}"}, {"/id", "{\"id\":\"a\",\"x\":\"\xc3(\"}"},
		{"/id", `{"id":"a","x":` + deep(11000) + `}`},
	} {
		expect(t, keyfunc.JSON(c.pointer), withBody(jsonType, c.body), "", keyfunc.ErrInvalid)
	}
	for _, contentType := range []string{"", "application/cloudevents+json", "text/plain; charset=UTF-8"} { // as Amazon SNS sends it
		expect(t, keyfunc.JSON("/id"), withBody(contentType, `{"id":"a"}`), "a", nil)
	}
	for _, contentType := range []string{urlencoded, "Multipart/Form-Data; boundary=b"} {
		expect(t, keyfunc.JSON("/id"), withBody(contentType, `{"id":"a"}`), "", keyfunc.ErrMissing)
	}
}

func FuzzJSON(f *testing.F) {
	for _, body := range []string{
		`{"id":"evt_1"}`, `{"id":1.50}`, `{"id":null,"id":"a"}`, `{"\u0069d":"a"}`, `[{"id":{}}]`, `{"id":"\ud800"}`, `{`, "\xff",
	} {
		f.Add("/id", []byte(body))
	}
	f.Add("/id", []byte(`{"id":"a","ID":"b"}`))
	f.Add("/id", []byte(`{"x":["}",{"\\\"":-1e5}, true ],"\u0049D":null, "id" : "a"}`))
	f.Add("/1", []byte(" [ [1,2.5e-1] , \"a\\\\\" ]"))
	f.Add("/events/0/id", []byte(`{"events":[{"id":"a"}]}`))
	f.Add("/a~1b/~0", []byte(`{"a/b":{"~":"a"}}`))
	f.Fuzz(func(t *testing.T, pointer string, body []byte) {
		defer func() {
			if p := recover(); p != nil {
				if text, _ := p.(string); !strings.HasPrefix(text, "keyfunc.JSON: ") {
					panic(p)
				}
			}
		}()
		fn := keyfunc.JSON(pointer)
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		key, err := fn(r)
		if err != nil && !errors.Is(err, keyfunc.ErrMissing) && !errors.Is(err, keyfunc.ErrInvalid) {
			t.Fatalf("err = %v", err)
		}
		if (key == "") != (err != nil) || len(key) > 255 {
			t.Fatalf("key = %q, err = %v", key, err)
		}
		if got, err := io.ReadAll(r.Body); err != nil || !bytes.Equal(got, body) {
			t.Fatalf("body after the call = %q, %v", got, err)
		}
		if err == nil && !json.Valid(body) {
			t.Fatalf("a key, %q, of what is not JSON", key)
		}
		if token, ok := strings.CutPrefix(pointer, "/"); ok && err == nil && !strings.ContainsAny(token, "/~") {
			compareWithUnmarshal(t, token, body, key)
		}
		if pointer == "/id" && err == nil {
			compareWithStruct(t, body, key)
		}
	})
}

// compareWithUnmarshal checks a key against what encoding/json makes of the body.
func compareWithUnmarshal(t *testing.T, token string, body []byte, key string) {
	var object map[string]any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if decoder.Decode(&object) != nil {
		return // an array
	}
	switch value := object[token].(type) {
	case string:
		if value != key {
			t.Fatalf("key = %q, want %q", key, value)
		}
	case json.Number:
		if value.String() != key {
			t.Fatalf("key = %q, want %q", key, value)
		}
	default:
		t.Fatalf("key = %q, of a %T", key, value)
	}
}

// compareWithStruct checks a key against what encoding/json reads into a struct, in which a name of another case counts.
func compareWithStruct(t *testing.T, body []byte, key string) {
	var event struct {
		ID any `json:"id"`
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&event); err != nil || fmt.Sprint(event.ID) != key {
		t.Fatalf("key = %q, and a struct has %v, %v", key, event.ID, err)
	}
}

// The memory for a body is bounded by its length.
func TestJSONMemory(t *testing.T) {
	repeat := func(text string) string { return strings.Repeat(text, 1<<17/len(text)) }
	for name, body := range map[string]string{
		"numbers in an array": `{"x":[` + repeat("1,") + `1],"id":"a"}`,
		"empty objects":       `[` + repeat("{},") + `1]`,
		"members":             `{` + repeat(`"":1,`) + `"id":"a"}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = keyfunc.JSON("/id")(withBody(jsonType, body))
		runtime.ReadMemStats(&after)
		if got := int(after.TotalAlloc - before.TotalAlloc); got > 96*len(body) {
			t.Errorf("%s: %d bytes allocated for a body of %d", name, got, len(body))
		}
	}
}
