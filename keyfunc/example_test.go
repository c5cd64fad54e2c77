package keyfunc_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/onceguard/onceguard/keyfunc"
)

type sessionKey struct{}

// signedIn does what an authentication middleware does.
func signedIn(r *http.Request, userID string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), sessionKey{}, userID))
}

func userID(ctx context.Context) string {
	id, _ := ctx.Value(sessionKey{}).(string)
	return id
}

func Example() {
	key := keyfunc.Standard(keyfunc.User(userID))

	r := httptest.NewRequest(http.MethodPost, "/payments", nil)
	r.Header.Set("Idempotency-Key", `"8e03978e-40d5"`)

	ada, _ := key(signedIn(r, "ada"))
	bob, _ := key(signedIn(r, "bob"))
	fmt.Println(ada != bob)

	_, err := key(r)
	fmt.Println(errors.Is(err, keyfunc.ErrNoUser))
	// Output:
	// true
	// true
}

// A Func of your own: the key is the id that a webhook's sender gives to each event.
func ExampleFunc() {
	event := keyfunc.Func(func(r *http.Request) (string, error) {
		id := r.PathValue("event")
		if id == "" {
			return "", keyfunc.ErrMissing
		}
		return id, nil
	})
	r := httptest.NewRequest(http.MethodPost, "/hooks/evt_1", nil)
	r.SetPathValue("event", "evt_1")
	fmt.Println(event(r))
	// Output: evt_1 <nil>
}

func ExampleRoute() {
	sub := http.StripPrefix("/v1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.URL.Path)
		fmt.Println(keyfunc.Route()(r))
	}))
	sub.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/orders?page=2", nil))
	// Output:
	// /orders
	// 4:POST10:/v1/orders <nil>
}

func ExampleJSON() {
	key := keyfunc.JSON("/id")
	r := httptest.NewRequest(http.MethodPost, "/hooks/payments", strings.NewReader(`{"id":"evt_1Mx","type":"paid"}`))
	fmt.Println(key(r))

	r = httptest.NewRequest(http.MethodPost, "/hooks/payments", strings.NewReader(`{"type":"paid"}`))
	fmt.Println(key(r))
	// Output:
	// evt_1Mx <nil>
	//  keyfunc: the request has no key in the JSON value /id
}

func ExampleFirst() {
	key := keyfunc.First(keyfunc.Form("key"), keyfunc.Header("Idempotency-Key"))

	api := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
	api.Header.Set("Idempotency-Key", "from-the-header")
	fmt.Println(key(api))

	form := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("key=from-the-form"))
	form.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	form.Header.Set("Idempotency-Key", "made-by-the-browser")
	fmt.Println(key(form))
	// Output:
	// from-the-header <nil>
	// from-the-form <nil>
}

// One user id in two organizations is two scopes: the id includes the organization that the user acts for.
func ExampleUser() {
	type session struct{ user, organization string }
	type sessionKey struct{}
	key := keyfunc.Standard(keyfunc.User(func(ctx context.Context) string {
		s, ok := ctx.Value(sessionKey{}).(session)
		if !ok {
			return "" // ErrNoUser
		}
		return fmt.Sprintf("%q of %q", s.user, s.organization)
	}))

	r := httptest.NewRequest(http.MethodPost, "/payments", nil)
	r.Header.Set("Idempotency-Key", "abc")
	shop, _ := key(r.WithContext(context.WithValue(r.Context(), sessionKey{}, session{"ada", "shop"})))
	bank, _ := key(r.WithContext(context.WithValue(r.Context(), sessionKey{}, session{"ada", "bank"})))
	fmt.Println(shop != bank)
	// Output: true
}

// Tenants by host: the same user and key on another host are another request.
func ExampleHost() {
	key := keyfunc.Compose(keyfunc.Standard(keyfunc.BasicUser()), keyfunc.Host())
	r := httptest.NewRequest(http.MethodPost, "https://Shop.example/payments", nil)
	r.SetBasicAuth("ada", "lovelace")
	r.Header.Set("Idempotency-Key", "abc")
	fmt.Println(key(r))
	// Output: 30:17:4:POST9:/payments3:ada3:abc12:shop.example <nil>
}

// An API whose documentation calls keys opaque strings.
func ExampleOpaque() {
	opaque, draft := keyfunc.Opaque("Idempotency-Key"), keyfunc.Header("Idempotency-Key")
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Idempotency-Key", `"abc"`)
	fmt.Println(opaque(r))
	fmt.Println(draft(r))
	// Output:
	// "abc" <nil>
	// abc <nil>
}

// A form has the key in a hidden field, and the API's clients have it in the header.
func ExampleScoped() {
	source := keyfunc.First(keyfunc.Form("idempotency_key"), keyfunc.Header("Idempotency-Key"))
	key := keyfunc.Scoped(source, keyfunc.BasicUser())

	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("idempotency_key=8e03978e"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth("ann", "")
	got, _ := key(r)
	fmt.Println(got == keyfunc.StandardKey("ann", "POST", "/orders", "8e03978e"))
	// Output: true
}

func ExampleMissingError() {
	r := httptest.NewRequest(http.MethodPost, "/payments", nil)
	_, err := keyfunc.Standard(keyfunc.BasicUser())(r)

	var missing keyfunc.MissingError
	if errors.As(err, &missing) {
		fmt.Printf("send a key in the %s %s\n", missing.In, missing.Name)
	}
	// Output: send a key in the header Idempotency-Key
}
