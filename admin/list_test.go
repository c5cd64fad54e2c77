package admin_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/admin"
	"github.com/onceguard/onceguard/middleware"
)

// The page lists what is stored with a status, and leads from there to each key.
func TestList(t *testing.T) {
	t.Parallel()
	d, s := newService(t, []middleware.Option{middleware.WithAtMostOnce()})
	s.works = true
	s.post()
	key := d.locker.StorageKey("k")
	d.stuck("other")
	d.want(d.send(httptest.NewRequest("GET", "/", nil)), 200, "Stored responses with a status")
	list := func(statuses string) answer { return d.send(form("action", "list", "statuses", statuses)) }

	d.want(list("200-299"), 200, "1 in Redis", "<p>201 <code>"+key+"</code></p>", `name="key" value="`+key+`"`)
	for i, e := range d.trail {
		if e.Action != admin.List || e.Key != "200-299" || e.Done != (i == 1) || e.Err != nil {
			t.Errorf("entry %d: %+v", i, e)
		}
	}
	if a := list("500-599"); strings.Contains(a.text, "<code>payments-api") || !strings.Contains(a.text, "0 in Redis") {
		t.Error(a.text)
	}
	d.trail = nil
	for _, wrong := range []string{"", "5xx", "299-200", "99", "1000", "\x1b", strings.Repeat("0", 300) + "200"} {
		d.want(list(wrong), 422, "such as 503")
	}
	if len(d.trail) > 0 {
		t.Errorf("a list that was not made is recorded: %+v", d.trail)
	}
	d.refuse = func(e admin.Entry) error { return map[bool]error{true: errors.New("full")}[e.Done] }
	if a := list("201"); a.status != 503 || strings.Contains(a.text, key) {
		t.Errorf("%d %s", a.status, a.text)
	}
	d.refuse = nil
	d.backend.Elapse(t, 25*time.Hour)
	d.want(list("201"), 200, "0 in Redis")
}

// A page without a Middleware cannot read what is stored, and has no such form.
func TestNoList(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if a := d.send(httptest.NewRequest("GET", "/", nil)); strings.Contains(a.text, "with a status") {
		t.Error(a.text)
	}
	d.want(d.send(form("action", "list", "statuses", "503")), 422, "Enter a storage key")
}

// A list has an end, says so, and counts what it cannot read.
func TestLongList(t *testing.T) {
	t.Parallel()
	d, s := newService(t, nil)
	s.works = true
	s.post()
	raw, _ := d.backend.Raw(t, d.locker.StorageKey("k"))
	if err := d.backend.Client(t).Set(t.Context(), d.locker.StorageKey("damaged"), raw[:len(raw)-1], 0).Err(); err != nil {
		t.Fatal(err)
	}
	d.want(d.send(form("action", "list", "statuses", "201")), 200, "1 in Redis", "1 others cannot be read")
	for i := range 205 {
		s.key = "k" + strings.Repeat("x", i)
		s.post()
	}
	a := d.send(form("action", "list", "statuses", "201"))
	d.want(a, 200, "200 of more in Redis")
	if n := strings.Count(a.text, "<p>201 "); n != 200 {
		t.Errorf("%d are listed", n)
	}
}
