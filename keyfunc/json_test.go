package keyfunc_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/keyfunc"
)

const jsonType = "application/json; charset=utf-8"

func TestJSON(t *testing.T) {
	t.Parallel()
	a := func(n int) string { return strings.Repeat("a", n) }
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	cases := []struct {
		name, pointer, body string
		want                string
		wantErr             error
	}{
		{"a member", "/id", `{"id":"evt_1","type":"paid"}`, "evt_1", nil},
		{"space around it", "/id", " \r\n\t{ \"id\" : \"evt_1\" } \n", "evt_1", nil},
		{"a nested member", "/data/object/id", `{"data":{"id":"no","object":{"x":[{}],"id":"ch_1"}},"id":"no"}`, "ch_1", nil},
		{"an element", "/events/1/id", `{"events":[{"id":"a"},{"id":"b"},{"id":"c"}]}`, "b", nil},
		{"a whole array", "/0", `["a","b"]`, "a", nil},
		{"a number as a name", "/0", `{"0":"a"}`, "a", nil},
		{"an escaped name", "/i~1d/~0/~01", `{"i/d":{"~":{"~1":"a"}}}`, "a", nil},
		{"an empty name", "/", `{"":"a"}`, "a", nil},
		{"a name with an escape", "/id", `{"\u0069d":"a"}`, "a", nil},
		{"a name in UTF-8", "/schlüssel", `{"schlüssel":"a"}`, "a", nil},
		{"another case", "/id", `{"ID":"a"}`, "", keyfunc.ErrMissing},
		{"a string with escapes", "/id", `{"id":"a\"\\\/\u0062"}`, `a"\/b`, nil},
		{"a string with a space", "/id", `{"id":" a b "}`, " a b ", nil},

		{"a number", "/id", `{"id":42}`, "42", nil},
		{"the least digit", "/id", `{"id":0}`, "0", nil},
		{"the greatest digit", "/id", `{"id":9}`, "9", nil},
		{"a number that float64 cannot hold", "/id", `{"id":12345678901234567891}`, "12345678901234567891", nil},
		{"a number with a fraction", "/id", `{"id":1.0}`, "1.0", nil},
		{"a number with an exponent", "/id", `{"id":-1E+2}`, "-1E+2", nil},
		{"a number of 255 digits", "/id", `{"id":` + strings.Repeat("7", 255) + `}`, strings.Repeat("7", 255), nil},
		{"a number of 256 digits", "/id", `{"id":` + strings.Repeat("7", 256) + `}`, "", keyfunc.ErrInvalid},

		{"no body", "/id", "", "", keyfunc.ErrMissing},
		{"absent", "/id", `{"type":"paid"}`, "", keyfunc.ErrMissing},
		{"absent in an empty object", "/id", `{}`, "", keyfunc.ErrMissing},
		{"null", "/id", `{"id":null}`, "", keyfunc.ErrMissing},
		{"null on the way", "/data/id", `{"data":null}`, "", keyfunc.ErrMissing},
		{"a string on the way", "/data/id", `{"data":"id"}`, "", keyfunc.ErrMissing},
		{"a scalar as the body", "/id", `"id"`, "", keyfunc.ErrMissing},
		{"an array where an object belongs", "/id", `["id"]`, "", keyfunc.ErrMissing},
		{"an array of several", "/id", `["a","b","c"]`, "", keyfunc.ErrMissing},
		{"behind the end", "/1", `["a"]`, "", keyfunc.ErrMissing},
		{"the element that does not exist", "/-", `["a"]`, "", keyfunc.ErrMissing},
		{"an index with a zero in front", "/00", `["a"]`, "", keyfunc.ErrMissing},
		{"a negative index", "/-1", `["a"]`, "", keyfunc.ErrMissing},

		{"an object", "/id", `{"id":{"a":"b"}}`, "", keyfunc.ErrInvalid},
		{"an array", "/id", `{"id":["a"]}`, "", keyfunc.ErrInvalid},
		{"true", "/id", `{"id":true}`, "", keyfunc.ErrInvalid},
		{"false", "/id", `{"id":false}`, "", keyfunc.ErrInvalid},
		{"an empty string", "/id", `{"id":""}`, "", keyfunc.ErrInvalid},
		{"255 characters", "/id", `{"id":"` + a(255) + `"}`, a(255), nil},
		{"256 characters", "/id", `{"id":"` + a(256) + `"}`, "", keyfunc.ErrInvalid},
		{"a control character", "/id", `{"id":"a\u0000"}`, "", keyfunc.ErrInvalid},
		{"not ASCII", "/id", `{"id":"é"}`, "", keyfunc.ErrInvalid},
		{"half a surrogate pair", "/id", `{"id":"\ud800"}`, "", keyfunc.ErrInvalid},

		{"the name twice", "/id", `{"id":"a","id":"a"}`, "", keyfunc.ErrInvalid},
		{"the name twice, once escaped", "/id", `{"id":"a","\u0069d":"b"}`, "", keyfunc.ErrInvalid},
		{"the name twice, first null", "/id", `{"id":null,"id":"b"}`, "", keyfunc.ErrInvalid},
		{"a name on the way twice", "/data/id", `{"data":{},"data":{"id":"a"}}`, "", keyfunc.ErrInvalid},
		{"the name in two cases", "/id", `{"id":"a","ID":"b"}`, "", keyfunc.ErrInvalid},
		{"the name in two cases, the other first", "/id", `{"Id":"b","id":"a"}`, "", keyfunc.ErrInvalid},
		{"the name in two other cases", "/id", `{"Id":"a","iD":"b"}`, "", keyfunc.ErrInvalid},
		{"the name in two cases, escaped", "/id", `{"id":"a","\u0049d":"b"}`, "", keyfunc.ErrInvalid},
		{"the name in two cases that are not ASCII", "/key", `{"key":"a","\u212aey":"b"}`, "", keyfunc.ErrInvalid}, // the Kelvin sign
		{"the name in two cases, null", "/id", `{"id":"a","ID":null}`, "", keyfunc.ErrInvalid},
		{"a name on the way in two cases", "/data/id", `{"data":{"id":"a"},"Data":{}}`, "", keyfunc.ErrInvalid},
		{"the name in two cases in two objects", "/id", `{"x":{"ID":"b"},"id":"a"}`, "a", nil},
		{"another name in two cases", "/id", `{"x":1,"X":2,"id":"a"}`, "a", nil},
		{"another name twice", "/id", `{"x":1,"x":2,"id":"a"}`, "a", nil},

		{"not JSON", "/id", `id=evt_1`, "", keyfunc.ErrInvalid},
		{"only space", "/id", ` `, "", keyfunc.ErrInvalid},
		{"cut off", "/id", `{"id":"evt_1"`, "", keyfunc.ErrInvalid},
		{"text behind it", "/id", `{"id":"a"}{"id":"b"}`, "", keyfunc.ErrInvalid},
		{"a comma too many", "/id", `{"id":"a",}`, "", keyfunc.ErrInvalid},
		{"a byte order mark", "/id", "\ufeff" + `{"id":"a"}`, "", keyfunc.ErrInvalid},
		{"invalid UTF-8 in the value", "/id", "{\"id\":\"a\xff\"}", "", keyfunc.ErrInvalid},
		{"invalid UTF-8 elsewhere", "/id", "{\"id\":\"a\",\"x\":\"\xc3(\"}", "", keyfunc.ErrInvalid},
		{"quotes and braces in strings", "/b/c", `{"a\"}{":"\\","b":{"x":"]}\\\"{","c":"a"}}`, "a", nil},
		{"space everywhere", "/b/1", " {\n\"a\" :\t[ 1 ,\r\n2 ] , \"b\" : [ 3 , 4.5e+6 ] } ", "4.5e+6", nil},
		{"values of each kind", "/9", `[0,-1.5E-3,true,false,null,"",{},[],{"a":[{}]},"a"]`, "a", nil},
		{"deep", "/id", `{"x":` + deep(9000) + `,"id":"a"}`, "a", nil},
		{"too deep", "/id", `{"id":"a","x":` + deep(11000) + `}`, "", keyfunc.ErrInvalid},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := withBody(jsonType, c.body)
			expect(t, keyfunc.JSON(c.pointer), r, c.want, c.wantErr)
			expectBody(t, r, c.body)
		})
	}
}

func TestJSONMediaTypes(t *testing.T) {
	t.Parallel()
	for contentType, wantErr := range map[string]error{
		"":                                nil,
		"application/cloudevents+json":    nil,
		"text/plain; charset=UTF-8":       nil, // as Amazon SNS sends it
		urlencoded:                        keyfunc.ErrMissing,
		"Multipart/Form-Data; boundary=b": keyfunc.ErrMissing,
	} {
		want := "a"
		if wantErr != nil {
			want = ""
		}
		expect(t, keyfunc.JSON("/id"), withBody(contentType, `{"id":"a"}`), want, wantErr)
	}
}

// A form next to JSON: each finds the key in its own kind of body.
func TestJSONOrForm(t *testing.T) {
	t.Parallel()
	key := keyfunc.First(keyfunc.JSON("/key"), keyfunc.Form("key"))
	expect(t, key, withBody(urlencoded, "key=form"), "form", nil)
	expect(t, key, withBody(jsonType, `{"key":"json"}`), "json", nil)
}

func TestJSONPanicsOnOtherPointers(t *testing.T) {
	t.Parallel()
	for _, pointer := range []string{"", "id", "#/id", "/a~", "/a~2b", "/~~01", "/a\xff"} {
		expectPanic(t, "keyfunc.JSON: ", func() { keyfunc.JSON(pointer) })
	}
}

func TestJSONNamesThePlace(t *testing.T) {
	t.Parallel()
	_, err := keyfunc.JSON("/data/id")(withBody(jsonType, `{}`))
	var got keyfunc.MissingError
	if want := (keyfunc.MissingError{In: "JSON value", Name: "/data/id"}); !errors.As(err, &got) || got != want {
		t.Errorf("%#v, want %#v", err, want)
	}
}

func TestJSONErrorsHoldNothingOfTheBody(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"id":"secret\u0000"}`, `{"id":{"secret":1}}`, `{"id":"secret","id":"secret"}`, `secret`, `{"secret":1}`,
	} {
		if _, err := keyfunc.JSON("/id")(withBody(jsonType, body)); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: err = %v", body, err)
		}
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

// The time for a body is bounded by its length, not by the number of its values: none of them is allocated.
func TestJSONDoesNotAllocateValues(t *testing.T) {
	for name, body := range megabytes() {
		if name == "escaped members" { // the names are copied
			continue
		}
		fn := keyfunc.JSON("/id")
		if n := testing.AllocsPerRun(1, func() { _, _ = fn(withBody(jsonType, body)) }); n > 200 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestJSONReadBefore(t *testing.T) {
	t.Parallel()
	r := withBody(jsonType, `{"id":"a"}`)
	_, _ = io.Copy(io.Discard, r.Body)
	_, err := keyfunc.JSON("/id")(r)
	expectReadError(t, err)
}
