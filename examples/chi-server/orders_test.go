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

// form loads the page and returns the fields of its form.
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

// Two clicks place one order, and both are redirected to it.
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
		t.Errorf("a form that was loaded again: got %d to %q, want 303 to another order", other.status, got)
	}
	if got := strings.Count(s.get("", "/").body, `<a href="/orders/`); got != 2 {
		t.Errorf("orders on the page: got %d, want 2", got)
	}
}

// Back, and another quantity: the visitor is told that they have ordered already, and what.
func TestOrderAlreadyPlaced(t *testing.T) {
	t.Parallel()
	s := start(t, "")
	form := s.form()
	place := s.submit(form).header.Get("Location")
	form.Set("quantity", "3")
	got := s.submit(form)
	if got.status != http.StatusUnprocessableEntity {
		t.Errorf("got %d, want 422", got.status)
	}
	for _, want := range []string{"You have already placed this order", "2 × &lt;tea&gt;", `href="` + place + `"`, "See it", "Order again"} {
		if !strings.Contains(got.body, want) {
			t.Errorf("the page lacks %s: %s", want, got.body)
		}
	}
	if strings.Contains(got.body, form.Get(keyField)) {
		t.Error("the key is on the page")
	}
}

// Each visitor sees their own orders only, and one without a cookie cannot order.
func TestVisitors(t *testing.T) {
	t.Parallel()
	s := start(t, "")
	form := s.form()
	place := s.submit(form).header.Get("Location")
	s.newVisitor()
	if got := s.submit(form); got.status != http.StatusForbidden || !strings.Contains(got.body, "cookie") {
		t.Errorf("without a cookie: got %d %s, want 403 and why", got.status, got.body)
	}
	if got := s.get("", place); got.status != http.StatusNotFound {
		t.Errorf("another visitor's order: got %d, want 404", got.status)
	}
	s.form() // for its cookie
	if other := s.submit(form); other.status != http.StatusSeeOther || other.header.Get("Location") == place {
		t.Errorf("another visitor with the same key: got %d to %s, want an order of their own", other.status, other.header.Get("Location"))
	}
	if page := s.get("", "/").body; strings.Count(page, `<a href="/orders/`) != 1 {
		t.Error("another visitor sees more than their own order")
	}
}

// The page of another site cannot make a browser order.
func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	s := start(t, "")
	form := s.form().Encode()
	for _, path := range []string{"/orders", "/payments", "/demo/unprotected/orders", "/demo/start-over", "/demo/redis/empty"} {
		r := s.request("POST", path, form)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		if got := s.do(r); got.status != http.StatusForbidden || strings.Contains(got.body, "cookie") {
			t.Errorf("%s: got %d %s, want 403", path, got.status, got.body)
		}
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
