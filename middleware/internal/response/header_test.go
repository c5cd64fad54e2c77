package response_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/middleware/internal/response"
)

func set(name string, values ...string) response.Change {
	return response.Change{Op: response.OpSet, Name: name, Values: values}
}

func add(name string, values ...string) response.Change {
	return response.Change{Op: response.OpAdd, Name: name, Values: values}
}

func del(name string) response.Change { return response.Change{Op: response.OpDelete, Name: name} }

// sorted returns the changes in the order of their names.
func sorted(changes []response.Change) []response.Change {
	slices.SortFunc(changes, func(a, b response.Change) int { return strings.Compare(a.Name, b.Name) })
	return changes
}

// What a handler changes in a header is found, and makes another outer header what it made of the first.
func TestChanged(t *testing.T) {
	for name, test := range map[string]struct {
		before, after http.Header
		want          []response.Change
		other, result http.Header // an outer header of another day, and what becomes of it
	}{
		"nothing":      {http.Header{"A": {"1"}}, http.Header{"A": {"1"}}, nil, http.Header{"A": {"2"}}, http.Header{"A": {"2"}}},
		"set":          {nil, http.Header{"A": {"1", "2"}}, []response.Change{set("A", "1", "2")}, http.Header{"A": {"3"}}, http.Header{"A": {"1", "2"}}},
		"set to none":  {nil, http.Header{"A": nil}, []response.Change{set("A")}, http.Header{}, http.Header{"A": nil}},
		"another":      {http.Header{"A": {"1"}}, http.Header{"A": {"2"}}, []response.Change{set("A", "2")}, http.Header{"A": {"3"}}, http.Header{"A": {"2"}}},
		"fewer":        {http.Header{"A": {"1", "2"}}, http.Header{"A": {"1"}}, []response.Change{set("A", "1")}, http.Header{}, http.Header{"A": {"1"}}},
		"another more": {http.Header{"A": {"1"}}, http.Header{"A": {"2", "1"}}, []response.Change{set("A", "2", "1")}, http.Header{}, http.Header{"A": {"2", "1"}}},
		"added":        {http.Header{"A": {"1"}}, http.Header{"A": {"1", "2"}}, []response.Change{add("A", "2")}, http.Header{"A": {"3"}}, http.Header{"A": {"3", "2"}}},
		"deleted":      {http.Header{"A": {"1"}}, http.Header{}, []response.Change{del("A")}, http.Header{"A": {"3"}, "B": {"4"}}, http.Header{"B": {"4"}}},
	} {
		snapshot := response.Snapshot(test.after)
		for _, values := range test.after {
			for i := range values {
				values[i] = "changed in place"
			}
		}
		got := response.Changed(test.before, snapshot)
		if fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		if response.Apply(test.other, got); !reflect.DeepEqual(test.other, test.result) {
			t.Errorf("%s: %v becomes of the other header, want %v", name, test.other, test.result)
		}
	}
	s := []response.Change{set("A", "1", "2"), set("B")}
	if response.First(s, "A") != "1" || response.First(s, "B") != "" || response.First(s, "C") != "" || response.Find(s, "C") != -1 ||
		response.ValuesOf(s, "C") != nil || len(response.ValuesOf(s, "A")) != 2 {
		t.Errorf("%v", s)
	}
	outer := make([]string, 1, 2) // another may have the rest of its memory
	h := http.Header{"A": outer}
	if response.Apply(h, []response.Change{add("A", "2")}); outer[:2][1] != "" {
		t.Error("Apply writes behind a list of values")
	}
}

// The fields of one connection, of one response, and cookies are not stored.
//
// conformance: 37, 42
func TestStorable(t *testing.T) {
	for name, test := range map[string]struct {
		change  response.Change
		cookies bool
		kept    bool
		dropped bool
	}{
		"a field":                      {change: set("Location", "/1"), kept: true},
		"Connection":                   {change: set("Connection", "close")},
		"Keep-Alive":                   {change: set("Keep-Alive", "x")},
		"Te":                           {change: set("Te", "x")},
		"Transfer-Encoding":            {change: set("Transfer-Encoding", "x")},
		"Upgrade":                      {change: set("Upgrade", "x")},
		"Proxy-Authenticate":           {change: set("Proxy-Authenticate", "x")},
		"in another case":              {change: set("keep-alive", "x")},
		"named by Connection":          {change: set("X-Hop", "x")},
		"the second name in it":        {change: set("X-Other", "x")},
		"deleted":                      {change: del("X-Hop")},
		"Date":                         {change: set("Date", "x")},
		"Age":                          {change: set("Age", "1")},
		"no Date":                      {change: set("Date"), kept: true},
		"Set-Cookie":                   {change: set("Set-Cookie", "a=b"), dropped: true},
		"Set-Cookie that is wanted":    {change: set("Set-Cookie", "a=b"), cookies: true, kept: true},
		"set-cookie":                   {change: set("set-cookie", "a=b"), dropped: true},
		"Set-Cookie as a late trailer": {change: set(http.TrailerPrefix+"Set-Cookie", "a=b"), dropped: true},
	} {
		kept, dropped := response.Storable([]response.Change{set("X-Kept", "1"), test.change}, []string{"close, x-hop", " X-Other "}, test.cookies)
		if got := len(kept) == 2; got != test.kept || dropped != test.dropped || kept[0].Name != "X-Kept" {
			t.Errorf("%s: kept %v, dropped %t", name, kept, dropped)
		}
	}
}

// Trailers are the announced ones and those with the prefix, if the handler has set them.
//
// conformance: 40
func TestTrailers(t *testing.T) {
	late := http.TrailerPrefix + "X-Late"
	announced := []string{"X-A, x-b", "X-Outer,X-None"}
	end := http.Header{"X-A": {"1"}, "X-B": {"2", "3"}, "X-C": {"4"}, late: {"5"}, "X-Outer": {"6"}, "X-None": nil, http.TrailerPrefix + "X-None": nil}
	got := sorted(response.Trailers(announced, http.Header{"X-Outer": {"6"}}, end))
	want := sorted([]response.Change{set("X-A", "1"), set("X-B", "2", "3"), set(late, "5")})
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if kept, dropped := response.WithoutCookies([]response.Change{set("Set-Cookie", "a=b")}, true); len(kept) != 1 || dropped {
		t.Errorf("with cookies: %v, %t", kept, dropped)
	}

	h := http.Header{"X-A": {"old"}, "X-B": {"old"}, "X-C": {"sent"}, http.TrailerPrefix + "X-Old": {"old"}}
	response.ReplaceTrailers(h, http.Header{"X-A": {"new"}, "X-C": {"too late"}, late: {"new"}}, announced)
	if want := (http.Header{"X-A": {"new"}, "X-C": {"sent"}, late: {"new"}}); !reflect.DeepEqual(h, want) {
		t.Errorf("%v, want %v", h, want)
	}
	h = http.Header{"X-C": {"sent"}}
	response.Announce(h, end)
	if want := (http.Header{"X-C": {"sent"}, late: {"5"}}); !reflect.DeepEqual(h, want) {
		t.Errorf("announced %v, want %v", h, want)
	}
	response.Replace(h, http.Header{"X-D": {"7"}})
	if want := (http.Header{"X-D": {"7"}}); !reflect.DeepEqual(h, want) {
		t.Errorf("replaced by %v, want %v", h, want)
	}
}

// A replay has the handler's status, header, trailers and body in today's outer header, with the mark.
//
// conformance: 16, 38, 40, 41
func TestWriteTo(t *testing.T) {
	late := http.TrailerPrefix + "X-Late"
	for name, test := range map[string]struct {
		method string
		outer  http.Header
		stored response.Response
		header http.Header // when the status is sent
		end    http.Header // afterwards; nil if it is the same
	}{
		"a response": {
			"POST", http.Header{"X-Id": {"today"}}, response.Response{Status: 201, Header: []response.Change{set("Location", "/1")}, Body: []byte("body")},
			http.Header{"X-Id": {"today"}, "Location": {"/1"}, "Content-Length": {"4"}}, nil,
		},
		"no body":         {"POST", http.Header{}, response.Response{Status: 200}, http.Header{"Content-Length": {"0"}}, nil},
		"HEAD":            {"HEAD", http.Header{}, response.Response{Status: 200}, http.Header{}, nil},
		"HEAD and a body": {"HEAD", http.Header{}, response.Response{Status: 200, Body: []byte("body")}, http.Header{"Content-Length": {"4"}}, nil},
		"its own length":  {"POST", http.Header{}, response.Response{Status: 200, Header: []response.Change{set("Content-Length", "04")}, Body: []byte("body")}, http.Header{"Content-Length": {"04"}}, nil},
		"no length": {
			"POST", http.Header{}, response.Response{Status: 200, Header: []response.Change{set("Content-Length")}, Body: []byte("body")}, http.Header{"Content-Length": nil}, nil,
		},
		"204": {"POST", http.Header{"Content-Length": {"9"}}, response.Response{Status: 204}, http.Header{}, nil},
		"304": {"POST", http.Header{}, response.Response{Status: 304, Header: []response.Change{set("Content-Length", "9")}}, http.Header{}, nil},
		"500": {"POST", http.Header{}, response.Response{Status: 500, Header: []response.Change{set("X-Should-Retry", "true")}}, http.Header{"Content-Length": {"0"}, "X-Should-Retry": {"false"}}, nil},
		"499": {"POST", http.Header{}, response.Response{Status: 499, Header: []response.Change{set("X-Should-Retry", "true")}}, http.Header{"Content-Length": {"0"}, "X-Should-Retry": {"true"}}, nil},
		"announced trailers": {
			"POST", http.Header{},
			response.Response{Status: 200, Header: []response.Change{set("Trailer", "X-A"), set("X-A", "early")}, Trailer: []response.Change{set("X-A", "1")}, Body: []byte("body")},
			http.Header{"Trailer": {"X-A"}, "X-A": {"early"}}, http.Header{"Trailer": {"X-A"}, "X-A": {"1"}},
		},
		"a trailer that is gone": {
			"POST", http.Header{}, response.Response{Status: 200, Header: []response.Change{set("Trailer", "X-A"), set("X-A", "early")}, Body: []byte("body")},
			http.Header{"Trailer": {"X-A"}, "X-A": {"early"}}, http.Header{"Trailer": {"X-A"}},
		},
		"late trailers": {
			"POST", http.Header{}, response.Response{Status: 200, Trailer: []response.Change{set(late, "1")}, Body: []byte("body")}, http.Header{late: {"1"}}, nil,
		},
	} {
		w := httptest.NewRecorder()
		outer := &sent{ResponseRecorder: w, h: test.outer}
		test.stored.WriteTo(outer, httptest.NewRequest(test.method, "/", nil), "Mark")
		test.header["Mark"] = []string{"true"}
		if test.end == nil {
			test.end = test.header
		}
		test.end["Mark"] = []string{"true"}
		if outer.status != test.stored.Status || !reflect.DeepEqual(outer.sent, test.header) || w.Body.String() != string(test.stored.Body) {
			t.Errorf("%s: %d %v %q, want %v", name, outer.status, outer.sent, w.Body, test.header)
		}
		if !reflect.DeepEqual(test.outer, test.end) {
			t.Errorf("%s: at the end %v, want %v", name, test.outer, test.end)
		}
	}
	for status, want := range map[int]bool{100: false, 199: false, 200: true, 204: false, 205: true, 304: false, 500: true} {
		if response.BodyAllowed(status) != want {
			t.Errorf("BodyAllowed(%d)", status)
		}
	}
}

// sent is a writer that keeps the header as it was with the status.
type sent struct {
	*httptest.ResponseRecorder
	h, sent http.Header
	status  int
}

func (s *sent) Header() http.Header { return s.h }

func (s *sent) WriteHeader(status int) { s.status, s.sent = status, s.h.Clone() }
