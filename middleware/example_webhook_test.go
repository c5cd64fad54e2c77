package middleware_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

var webhookSecret = []byte("from your secret store")

func sign(body []byte) string {
	mac := hmac.New(sha256.New, webhookSecret)
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// verify checks the provider's signature, and puts the body back for those that read it next.
func verify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err != nil || !hmac.Equal([]byte(r.Header.Get("Signature")), []byte(sign(body))) {
			http.Error(w, "signature does not match", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// A provider sends each event until it is acknowledged, so an event may come twice. Its id is in the body. The provider
// counts down pending_webhooks from one try to the next: two tries are the same request although their bodies differ, so
// the id, which is the key already, is all that is compared.
func ExampleIdempotency_webhook() {
	locker, server := startLocker()
	defer server.stop()

	key := keyfunc.Compose(keyfunc.JSON("/id"), keyfunc.Route(), keyfunc.Anonymous())
	once := middleware.Idempotency(locker, key,
		middleware.WithRequired(), // an event without an id is not one of the provider's
		middleware.WithFingerprint("event id", func(*http.Request, []byte) []byte { return nil }))
	hook := verify(once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Println("the order is marked as paid")
		w.WriteHeader(http.StatusNoContent)
	})))

	deliver := func(signature, body string) {
		r := httptest.NewRequest(http.MethodPost, "/hooks/payments", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Signature", signature)
		w := httptest.NewRecorder()
		hook.ServeHTTP(w, r)
		fmt.Println(w.Code, "replayed:", w.Header().Get("Idempotent-Replayed") == "true")
	}
	first := `{"id":"evt_1Mx","type":"payment.succeeded","pending_webhooks":2}`
	again := `{"id":"evt_1Mx","type":"payment.succeeded","pending_webhooks":1}`
	deliver(sign([]byte(first)), first)
	deliver(sign([]byte(again)), again)
	deliver("forged", `{"id":"evt_2Nz","type":"payment.succeeded"}`)
	// Output:
	// the order is marked as paid
	// 204 replayed: false
	// 204 replayed: true
	// 400 replayed: false
}
