package middleware_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// keyOf stands for a key of 32 random bytes from your secret store.
func keyOf(year string) []byte { return []byte(strings.Repeat(year, 8)) }

// The key of this year encrypts, and that of last year still decrypts what was stored with it.
func ExampleWithEncryption() {
	locker, server := startLocker()
	defer server.stop()
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "IBAN DE89 3704 0044 0532 0130 00")
	})
	lastYear := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithEncryption(keyOf("2025")))
	thisYear := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithEncryption(keyOf("2026"), keyOf("2025")))

	post(lastYear(pay), "8e03978e", `{"amount":1250}`)
	post(thisYear(pay), "8e03978e", `{"amount":1250}`)
	for _, key := range server.Keys() {
		stored, _ := server.Get(key)
		fmt.Println("visible in Redis:", strings.Contains(stored, "IBAN"))
	}
	// Output:
	// 200
	// 200 replayed
	// visible in Redis: false
}

// A retry comes after the deployment that switched encryption on.
func ExampleWithPlaintextReads() {
	locker, server := startLocker()
	defer server.stop()
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
	})
	before := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()))
	now := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithEncryption(keyOf("2026")), middleware.WithPlaintextReads())
	later := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithEncryption(keyOf("2026")))

	post(before(pay), "8e03978e", `{"amount":1250}`)
	post(now(pay), "8e03978e", `{"amount":1250}`)
	post(later(pay), "8e03978e", `{"amount":1250}`) // too early: the retention is not over
	// Output:
	// 201
	// 201 replayed
	// 500
}

func ExampleWithCompression() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithCompression(1<<10))

	report := bytes.Repeat([]byte(`{"status":"succeeded","currency":"EUR"},`), 1000)
	export := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(report)
	}))
	post(export, "8e03978e", "")
	w := post(export, "8e03978e", "")
	fmt.Println(bytes.Equal(w.Body.Bytes(), report))
	for _, key := range server.Keys() {
		stored, _ := server.Get(key)
		fmt.Println("less than a tenth:", len(stored) < len(report)/10)
	}
	// Output:
	// 200
	// 200 replayed
	// true
	// less than a tenth: true
}
