package check_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
)

// Ids tell runs apart, and what every response has anew does not.
func TestIDs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		learnt    [3]string // the bodies of three runs
		responses []string
		want      int
	}{
		{"a repetition", [3]string{`{"id":1}`, `{"id":2}`, `{"id":3}`}, []string{`{"id":4}`, `{"id":4}`}, 1},
		{"two runs", [3]string{`{"id":1}`, `{"id":2}`, `{"id":3}`}, []string{`{"id":4}`, `{"id":5}`, `{"id":5}`}, 2},
		{"rendered anew", [3]string{`{"id":1,"at":1}`, `{"id":2,"at":2}`, `{"id":3,"at":3}`},
			[]string{`{"id":4,"at":4}`, `{"at":5, "id":4}`}, 1},
		{"no JSON", [3]string{"order 1", "order 2", "order 3"}, []string{"order 4", "order 5"}, 2},
		{"cut", [3]string{"order 1", "order 2", "order 3"}, []string{"order 4", "order"}, 1},
		{"empty", [3]string{`{"id":1}`, `{"id":2}`, `{"id":3}`}, []string{`{"id":4}`, ""}, 1},
		{"large numbers", [3]string{`{"id":9007199254740993}`, `{"id":9007199254740992}`, `{"id":3}`},
			[]string{`{"id":9007199254740995}`, `{"id":9007199254740996}`}, 2},
		{"none", [3]string{`{"ok":true}`, `{"ok":true}`, `{"ok":true}`}, []string{`{"ok":true}`, `{"ok":false}`}, 1},
	} {
		var all []*ask.Response
		for _, body := range append(c.learnt[:], c.responses...) {
			all = append(all, &ask.Response{Status: 201, Header: http.Header{}, Body: []byte(body)})
		}
		// The three that were learnt from are runs themselves, if they have ids.
		learnt := check.Runs(all[:3])
		want := c.want
		if learnt == 3 {
			want += 3
		}
		if got := check.Runs(all); got != want {
			t.Errorf("%s: %d runs, want %d", c.name, got-learnt, c.want)
		}
	}
}

func FuzzIDs(f *testing.F) {
	f.Add([]byte(`{"id":1}`), []byte(`{"id":2}`), "/1")
	f.Add([]byte(`[[[]]]`), []byte("\xff"), "")
	f.Fuzz(func(t *testing.T, one, other []byte, location string) {
		response := func(body []byte) *ask.Response {
			return &ask.Response{Status: 201, Header: http.Header{"Location": {location}}, Body: body}
		}
		if n := check.Runs([]*ask.Response{response(one), response(other), response(nil), response(one)}); n < 1 || n > 3 {
			t.Errorf("%d runs of three", n)
		}
	})
}

// Every row says all that a developer who has never read the draft needs.
func TestRowsAreComplete(t *testing.T) {
	t.Parallel()
	id := regexp.MustCompile(`^(key|once|replay|mismatch|scope|inflight|errors|store|crash|load)/[a-z0-9-]+$`)
	seen := map[string]bool{}
	for _, c := range check.All() {
		says := c.Title != "" && c.Customer() != "" && !strings.HasSuffix(c.Title+c.Customer(), ".")
		if !id.MatchString(c.ID) || seen[c.ID] || !says {
			t.Errorf("%+v", c)
		}
		seen[c.ID] = true
	}
}
