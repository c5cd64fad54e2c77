package check_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

func TestSpellings(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][2]string{ // another number, and one more null
		`{"a":1}`:                     {`{"a":1.0}`, `{"a":1,"oncecheck":null}`},
		`{"a":"1","b":[1.5,2]}`:       {`{"a":"1","b":[1.50,2]}`, `{"a":"1","b":[1.5,2],"oncecheck":null}`},
		`{"a":{"1":-0},"b":3}` + "\n": {`{"a":{"1":-0.0},"b":3}` + "\n", `{"a":{"1":-0},"b":3,"oncecheck":null}` + "\n"},
		`{"a":1e2, "b":"}"}`:          {"", `{"a":1e2, "b":"}","oncecheck":null}`},
		`{ }`:                         {"", `{ "oncecheck":null}`},
		`[1]`:                         {`[1.0]`, ""},
		`null`:                        {"", ""},
		`a=1`:                         {"", ""},
		``:                            {"", ""},
	} {
		_, number, null := check.Spellings([]byte(body))
		if string(number) != want[0] || string(null) != want[1] {
			t.Errorf("%s: got %s and %s, want %s and %s", body, number, null, want[0], want[1])
		}
	}
}

// A body that is JSON stays JSON, and only one more null changes its value.
func FuzzSpellings(f *testing.F) {
	f.Add(`{"a":[1,{"b":-2.50}],"c":"}\"1"}`)
	f.Add("[1E2,3] ")
	f.Fuzz(func(t *testing.T, body string) {
		var value any
		if json.Unmarshal([]byte(body), &value) != nil {
			return
		}
		space, number, null := check.Spellings([]byte(body))
		for _, again := range [][]byte{space, number} {
			var other any
			if again != nil && (json.Unmarshal(again, &other) != nil || string(again) == body || !reflect.DeepEqual(value, other)) {
				t.Errorf("%q became %q", body, again)
			}
		}
		var members map[string]any
		if null != nil && (json.Unmarshal(null, &members) != nil || members["oncecheck"] != nil) {
			t.Errorf("%q became %q", body, null)
		}
	})
}
