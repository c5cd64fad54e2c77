package check_test

import (
	"fmt"
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
		{"in a list", [3]string{`{"data":[{"id":1}]}`, `{"data":[{"id":2}]}`, `{"data":[{"id":3}]}`},
			[]string{`{"data":[{"id":4}]}`, `{"data":[{"id":5}]}`}, 2},
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

// Each response is parsed a few times, and not once more for each of its values. Not parallel: it counts allocations.
func TestIDsOfALongList(t *testing.T) {
	var responses []*ask.Response
	for i := range 4 {
		body := fmt.Appendf(nil, "[%d%s]", i, strings.Repeat(fmt.Sprintf(",%d", i), 999))
		responses = append(responses, &ask.Response{Status: 201, Header: http.Header{}, Body: body})
	}
	if n := testing.AllocsPerRun(1, func() { check.Runs(responses) }); n > 100_000 {
		t.Errorf("%v allocations for four lists of 1000", n)
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

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := http.Header{"Date": {"Sun, 22 Nov 2026 20:43:26 GMT"}}
	for value, want := range map[string]int{"0": 0, "7": 7, "Sun, 22 Nov 2026 20:43:36 GMT": 10, "Sun, 22 Nov 2026 20:43:16 GMT": -10} {
		if got, ok := check.ParseRetryAfter(value, now); !ok || got != want {
			t.Errorf("%q: %d, %v", value, got, ok)
		}
	}
	for _, value := range []string{"", "1.5", "-1", "soon", "+1", "99999999999999"} {
		if got, ok := check.ParseRetryAfter(value, now); ok {
			t.Errorf("%q: %d", value, got)
		}
	}
}

// Every row says all that a developer who has never read the draft needs.
func TestRowsAreComplete(t *testing.T) {
	t.Parallel()
	id := regexp.MustCompile(`^(key|once|replay|mismatch|scope|inflight|errors|store|crash|cors|cache|load)/[a-z0-9-]+$`)
	seen := map[string]bool{}
	for _, c := range check.All() {
		says := c.Title != "" && c.Customer != "" && !strings.HasSuffix(c.Title+c.Customer, ".")
		if !id.MatchString(c.ID) || seen[c.ID] || !says {
			t.Errorf("%+v", c)
		}
		seen[c.ID] = true
		if found, ok := check.Find(c.ID); !ok || found.ID != c.ID {
			t.Errorf("%s is found as %s", c.ID, found.ID)
		}
	}
	if len(seen) != 98 {
		t.Errorf("%d checks", len(seen))
	}
	// These are of earlier versions.
	for _, alias := range []string{"once/concurrent-10", "key/empty"} {
		if c, ok := check.Find(alias); !ok || c.ID == alias || !c.Is(alias) {
			t.Errorf("%s: %s, %v", alias, c.ID, ok)
		}
	}
}
