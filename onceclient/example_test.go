package onceclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/onceguard/onceguard/onceclient"
)

// shop starts a server that takes orders, and counts them. It stores its response under the key, and loses the first that it
// sends: the order is placed, and the connection closes.
func shop() (url string, orders func() int, stop func()) {
	stored := map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if response, ok := stored[key]; ok {
			w.Header().Set("Idempotent-Replayed", "true")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, response)
			return
		}
		stored[key] = fmt.Sprintf("order %d", len(stored)+1)
		panic(http.ErrAbortHandler)
	}))
	return server.URL, func() int { return len(stored) }, server.Close
}

// The response to the first try is lost. The second try gets the stored one, and there is one order.
func Example() {
	url, orders, stop := shop()
	defer stop()

	client := &http.Client{Transport: onceclient.New(nil)}
	defer client.CloseIdleConnections()

	key := onceclient.NewKey() // store it beside the order, before the first try
	ctx := onceclient.WithKey(context.Background(), key)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders", strings.NewReader(`{"item":"book"}`))
	if err != nil {
		panic(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body), "- replayed:", resp.Header.Get("Idempotent-Replayed"))
	fmt.Println("orders:", orders())
	// Output:
	// 201 order 1 - replayed: true
	// orders: 1
}

// A caller that gets a GaveUpError asks again later, with the same key.
func ExampleGaveUpError() {
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler) // it may have taken effect, and there is no response
	}))
	defer silent.Close()

	client := &http.Client{Transport: onceclient.New(nil, onceclient.WithLimit(50*time.Millisecond))}
	_, err := client.Post(silent.URL, "application/json", strings.NewReader(`{"amount":1250}`))
	var gaveUp *onceclient.GaveUpError
	if errors.As(err, &gaveUp) {
		fmt.Println("tried:", gaveUp.Attempts > 0, "- last status:", gaveUp.Status, "- key to ask again with:", gaveUp.Key != "")
	}
	// Output: tried: true - last status: 0 - key to ask again with: true
}

// Two kinds of 409: one that a repetition cures is repeated by the Transport, the others are returned.
func ExampleProblemType() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("X-Should-Retry", "false")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"type":"urn:onceguard:problem:outcome-unknown","status":409}`)
	}))
	defer server.Close()
	client := &http.Client{Transport: onceclient.New(nil)}
	defer client.CloseIdleConnections()

	resp, err := client.Post(server.URL, "application/json", strings.NewReader(`{}`))
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	if onceclient.ProblemType(resp) == onceclient.OutcomeUnknown {
		fmt.Println("look into the ledger before anything is sent again")
	}
	// Output: look into the ledger before anything is sent again
}
