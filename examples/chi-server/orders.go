package main

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/onceguard/onceguard/examples/chi-server/internal/demo"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// order is an order that was placed.
type order struct {
	ID       string
	Item     string
	Quantity int

	key string // as it stands in Redis, hashed
}

const (
	maxItem     = 100 // characters
	maxQuantity = 99
)

// orderKey takes the key from a hidden field of the form, because an HTML form cannot send a header of its own. One
// page view is one order.
func orderKey() keyfunc.Func {
	return keyfunc.Compose(keyfunc.Route(), keyfunc.User(visitorID), keyfunc.Form(keyField))
}

const keyField = "idempotency_key"

// ordersPage places the orders of the form. A visitor sees only their own.
type ordersPage struct {
	placed history[order]
	page   func(http.ResponseWriter, *http.Request, demo.OrderForm)
}

// form shows the form with a fresh key, and the visitor's orders.
func (o *ordersPage) form(w http.ResponseWriter, r *http.Request) {
	form := demo.OrderForm{KeyField: keyField, Key: uuid.NewString(), MaxItem: maxItem, MaxQuantity: maxQuantity}
	for _, placed := range o.placed.of(visitorID(r.Context())) {
		form.Placed = append(form.Placed, demo.Link{
			Path: "/orders/" + placed.ID,
			Text: fmt.Sprintf("%d × %s", placed.Quantity, placed.Item),
		})
	}
	o.page(w, r, form)
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
	key := middleware.FromContext(r.Context()).Key()
	placed := order{ID: uuid.NewString(), Item: item, Quantity: quantity, key: key}
	o.placed.add(visitorID(r.Context()), placed.ID, placed)
	http.Redirect(w, r, "/orders/"+placed.ID, http.StatusSeeOther)
}

// show shows one order.
func (o *ordersPage) show(w http.ResponseWriter, r *http.Request) {
	placed, ok := o.placed.find(visitorID(r.Context()), chi.URLParam(r, "id"))
	if !ok {
		render(w, http.StatusNotFound, "unknown", nil)
		return
	}
	render(w, http.StatusOK, "order", placed)
}

// problem answers instead of Idempotency's own pages. It is for middleware.WithProblem. The one that matters is what a
// visitor gets who has gone back to the form and sent it with another quantity.
func (o *ordersPage) problem(w http.ResponseWriter, r *http.Request, p middleware.Problem) {
	if p.Type != "urn:onceguard:problem:key-reused" {
		render(w, p.Status, "problem", p)
		return
	}
	hash := strings.TrimPrefix(p.Instance, "urn:onceguard:key:")
	placed := o.placed.of(visitorID(r.Context()))
	var found *order // nil while it is being placed
	if i := slices.IndexFunc(placed, func(o order) bool { return strings.HasSuffix(o.key, hash) }); i >= 0 {
		found = &placed[i]
	}
	render(w, p.Status, "already", map[string]any{"Placed": found})
}
