package main

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
)

var hidden = regexp.MustCompile(`<input type="hidden" name="idempotency_key" value="([^"]*)">`)

// form returns the fields of a form that was just loaded.
func (s *server) form() url.Values {
	s.t.Helper()
	page := s.get("", "/")
	key := hidden.FindStringSubmatch(page.body)
	if page.status != http.StatusOK || key == nil || uuid.Validate(key[1]) != nil {
		s.t.Fatalf("GET /: got %d, key %q; want 200 and a UUID", page.status, key)
	}
	if got := page.header.Get("Cache-Control"); got != "no-store" {
		s.t.Errorf("Cache-Control: got %q, want no-store", got)
	}
	return url.Values{"idempotency_key": {key[1]}, "item": {"<tea>"}, "quantity": {"2"}}
}

// Two clicks make one order, and both end at it.
// conformance: 51
func TestDoubleClick(t *testing.T) {
	t.Parallel()
	s := start(t, "")
	form := s.form()
	first, second := s.submit(form), s.submit(form)
	place := first.header.Get("Location")
	if first.status != http.StatusSeeOther || !strings.HasPrefix(place, "/orders/") {
		t.Fatalf("first click: got %d to %q, want 303 to the order", first.status, place)
	}
	if second.status != http.StatusSeeOther || second.header.Get("Location") != place {
		t.Errorf("second click: got %d to %q, want 303 to %q", second.status, second.header.Get("Location"), place)
	}
	if got := s.get("", place); got.status != http.StatusOK || !strings.Contains(got.body, "2 × &lt;tea&gt;") {
		t.Errorf("the order: got %d %s, want 2 × <tea>, escaped", got.status, got.body)
	}
	other := s.submit(s.form())
	if got := other.header.Get("Location"); other.status != http.StatusSeeOther || got == place {
		t.Errorf("a form that was loaded anew: got %d to %q, want 303 to another order", other.status, got)
	}
	if got := strings.Count(s.get("", "/").body, `<a href="/orders/`); got != 2 {
		t.Errorf("orders on the page: got %d, want 2", got)
	}
}

func TestOrdersRefused(t *testing.T) {
	t.Parallel()
	s := start(t, "")
	tests := []struct {
		name  string
		field string
		value string
		want  int
	}{
		{"no key", "idempotency_key", "", http.StatusBadRequest},
		{"no item", "item", "", http.StatusUnprocessableEntity},
		{"long item", "item", strings.Repeat("ä", maxItem+1), http.StatusUnprocessableEntity},
		{"no number", "quantity", "two", http.StatusUnprocessableEntity},
		{"none", "quantity", "0", http.StatusUnprocessableEntity},
		{"too many", "quantity", "100", http.StatusUnprocessableEntity},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			form := s.form()
			if form.Set(tt.field, tt.value); tt.value == "" {
				form.Del(tt.field)
			}
			got := s.submit(form)
			if got.status != tt.want || got.header.Get("Content-Type") != "text/html; charset=utf-8" {
				t.Errorf("got %d %q, want %d and a page", got.status, got.header.Get("Content-Type"), tt.want)
			}
		})
	}
	if got := s.get("", "/orders/"+uuid.NewString()); got.status != http.StatusNotFound {
		t.Errorf("an order that was not placed: got %d, want 404", got.status)
	}
	if page := s.get("", "/").body; !strings.Contains(page, "Nothing.") {
		t.Errorf("ordered nevertheless: %s", page)
	}
}
