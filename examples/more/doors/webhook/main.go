// Command webhook receives webhooks as https://www.standardwebhooks.com describes them, and handles each once. A sender
// repeats a webhook until it gets a 2xx, for days, with the same webhook-id and a new timestamp and signature.
//
//	redis-server &
//	go run .
//
// It listens on 127.0.0.1:8080. Send the same webhook twice:
//
//	body='{"type":"invoice.paid"}' id=msg_1 at=$(date +%s)
//	key=$(printf MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw | base64 -d | xxd -p -c 99)
//	signature=$(printf '%s.%s.%s' $id $at "$body" | openssl dgst -sha256 -mac HMAC -macopt hexkey:$key -binary | base64)
//	curl -i 127.0.0.1:8080/webhooks -H "webhook-id: $id" -H "webhook-timestamp: $at" -H "webhook-signature: v1,$signature" -d "$body"
package main

import (
	"bytes"
	"cmp"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// secret is that of the specification's example, for a program that nobody has configured.
const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`host:port` to listen on")
	store := flag.String("redis", "127.0.0.1:6379", "`host:port` of Redis")
	flag.Parse()
	listener, err := net.Listen("tcp", *addr)
	if err == nil {
		log.Printf("listening on http://%s/webhooks", listener.Addr())
		err = serve(listener, *store, cmp.Or(os.Getenv("WEBHOOK_SECRET"), secret))
	}
	log.Fatal(err)
}

// serve receives webhooks.
func serve(listener net.Listener, store, secret string) error {
	webhook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return err
	}
	// The client sends a command once: the effect of this example is a command, and a client that retries after a lost reply
	// would have it twice.
	client := redis.NewClient(&redis.Options{Addr: store, MaxRetries: -1, ReadTimeout: time.Minute})
	// There is one sender, so all ids have one scope. With several senders, the name of the sender is the scope.
	key := keyfunc.Compose(keyfunc.Route(), keyfunc.Anonymous(), keyfunc.Header(standardwebhooks.HeaderWebhookID))
	// The default mode is right for a sender that repeats: a 5xx frees the key.
	once := middleware.Idempotency(lock.New(client, "webhooks"), key,
		middleware.WithRequired(),
		middleware.WithWait(10*time.Second),
		// Longer than the sender repeats.
		middleware.WithRetention(14*24*time.Hour),
	)
	// once is inside: only a sender gets a replay.
	http.Handle("POST /webhooks", verified(webhook, once(receive(client))))
	// A handler may run for 60 s.
	server := &http.Server{ReadTimeout: 10 * time.Second, WriteTimeout: 70 * time.Second}
	return server.Serve(listener)
}

// verified passes webhooks whose signature is the sender's, of the last five minutes. Others get 401.
func verified(webhook *standardwebhooks.Webhook, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		}
		if webhook.Verify(body, r.Header) != nil {
			http.Error(w, "the signature is not valid", http.StatusUnauthorized)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// receive stands for what your service does: it appends to a list.
func receive(client *redis.Client) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = client.RPush(r.Context(), "received", body).Err()
		}
		if err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
