package main

import (
	_ "embed" // the page
	"html/template"
	"net/http"
	"slices"
	"strconv"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/onceguard/onceguard/examples/chi-server/internal/demo"
	"github.com/onceguard/onceguard/keyfunc"
)

// order is an order that was placed.
type order struct {
	ID, Item string
	Quantity int
}

// orderKey takes the key from a hidden field of the form, because an HTML form cannot send a header of its own. One
// page view is one order.
func orderKey() keyfunc.Func {
	return keyfunc.Compose(keyfunc.Route(), keyfunc.User(user), keyfunc.Form("idempotency_key"))
}

// orderForm shows the form with a fresh key, and the visitor's orders.
func orderForm(placed *ledger[order], page func(http.ResponseWriter, *http.Request, demo.Form)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		page(w, r, demo.Form{Key: uuid.NewString(), Placed: placed.of(user(r.Context()))})
	}
}

// createOrder places an order and redirects the browser to it, so that a reload does not place another (RFC 9110, section
// 15.4.4).
func createOrder(placed *ledger[order]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o := order{ID: uuid.NewString(), Item: r.PostFormValue("item")}
		o.Quantity, _ = strconv.Atoi(r.PostFormValue("quantity"))
		if o.Item == "" || o.Quantity < 1 {
			http.Error(w, "An order needs an item and a quantity.", http.StatusUnprocessableEntity)
			return
		}
		if !delay(r) {
			http.Error(w, "There was no time to place the order.", http.StatusServiceUnavailable)
			return
		}
		placed.add(user(r.Context()), o)
		http.Redirect(w, r, "/orders/"+o.ID, http.StatusSeeOther)
	}
}

//go:embed order.html
var orderSource string

var orderPage = template.Must(template.New("order").Parse(orderSource))

func showOrder(placed *ledger[order]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		list := placed.of(user(r.Context()))
		i := slices.IndexFunc(list, func(o order) bool { return o.ID == chi.URLParam(r, "id") })
		if i < 0 {
			http.NotFound(w, r)
			return
		}
		// It fails if the client has disconnected.
		_ = orderPage.Execute(w, list[i])
	}
}
