package main

import (
	"bytes"
	_ "embed" // the page
	"html/template"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/onceguard/onceguard/keyfunc"
)

// order is an order that was placed.
type order struct {
	ID       string
	Item     string
	Quantity int
}

const (
	maxItem     = 100 // characters
	maxQuantity = 99
)

// orderKey takes the key from a hidden field of the form, because an HTML form cannot send a header of its own. One
// page view is one order.
//
// The page has no login, so the key has no user in it. Anonymous is safe here because the server makes the key, a
// random UUID that no other visitor can guess. With a login, use the user.
func orderKey() keyfunc.Func {
	return keyfunc.Compose(keyfunc.Route(), keyfunc.Anonymous(), keyfunc.Form(keyField))
}

const keyField = "idempotency_key"

//go:embed page.html
var pageSource string

var pages = template.Must(template.New("").Parse(pageSource))

// ordersPage is the page with the order form. All visitors see the same orders.
type ordersPage struct {
	placed history[order]
}

// form shows the form with a fresh key, and all orders. It must not be cached: a cached form has a used key.
func (o *ordersPage) form(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	render(w, http.StatusOK, "form", map[string]any{
		"KeyField": keyField,
		"Key":      uuid.NewString(),
		"MaxItem":  maxItem,
		"MaxCount": maxQuantity,
		"Orders":   o.placed.of(""),
	})
}

// create places an order and redirects the browser to it, so that a reload does not place another (RFC 9110, section
// 15.4.4).
func (o *ordersPage) create(w http.ResponseWriter, r *http.Request) {
	delay, ok := parseDelay(r.URL.Query().Get("delay"))
	if !ok {
		render(w, http.StatusBadRequest, "delay", maxDelay)
		return
	}
	item := r.PostFormValue("item")
	quantity, err := strconv.Atoi(r.PostFormValue("quantity"))
	if n := utf8.RuneCountInString(item); n < 1 || n > maxItem || err != nil || quantity < 1 || quantity > maxQuantity {
		render(w, http.StatusUnprocessableEntity, "refused", map[string]any{"MaxItem": maxItem, "MaxCount": maxQuantity})
		return
	}
	if !waitOrDiscard(r.Context(), delay) {
		render(w, http.StatusServiceUnavailable, "late", nil)
		return
	}
	placed := order{ID: uuid.NewString(), Item: item, Quantity: quantity}
	o.placed.add("", placed.ID, placed)
	http.Redirect(w, r, "/orders/"+placed.ID, http.StatusSeeOther)
}

// show shows one order.
func (o *ordersPage) show(w http.ResponseWriter, r *http.Request) {
	placed, ok := o.placed.find("", chi.URLParam(r, "id"))
	if !ok {
		render(w, http.StatusNotFound, "unknown", nil)
		return
	}
	render(w, http.StatusOK, "order", placed)
}

// render answers with a page, or with 500 if the template fails.
func render(w http.ResponseWriter, status int, name string, data any) {
	var page bytes.Buffer
	if err := pages.ExecuteTemplate(&page, name, data); err != nil {
		writeProblem(w, http.StatusInternalServerError, "The page cannot be shown.")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w) // the client may have disconnected
}
