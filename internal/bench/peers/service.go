package main

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// answer is what the handler of each contender returns.
type answer struct {
	status int
	header map[string]string
	body   []byte
}

// pay is the handler of all contenders: it takes as long as the query says before and after it makes a payment, which is one
// byte at the end of the file, and answers in the way that the query asks for.
func pay(effects *os.File, query url.Values, body []byte) (answer, error) {
	d, _ := time.ParseDuration(query.Get("slow"))
	time.Sleep(min(d, 10*time.Second))
	if query.Get("fail") == "before" {
		return answer{status: http.StatusBadGateway, body: []byte("the bank does not answer\n")}, nil
	}
	var order struct{ Amount int }
	if err := json.Unmarshal(body, &order); err != nil || order.Amount <= 0 {
		return answer{status: http.StatusBadRequest, body: []byte("amount must be a number above 0\n")}, nil
	}
	if _, err := effects.Write([]byte(".")); err != nil {
		return answer{}, err
	}
	d, _ = time.ParseDuration(query.Get("late"))
	time.Sleep(min(d, 10*time.Second))
	if query.Has("fail") {
		return answer{status: http.StatusInternalServerError, body: []byte("the receipt cannot be printed\n")}, nil
	}
	id := rand.Text()
	text, err := json.Marshal(map[string]any{"id": id, "amount": order.Amount})
	a := answer{http.StatusCreated, map[string]string{
		"Content-Type": "application/json", "Location": "/payments/" + id, "ETag": `"` + id + `"`, "Set-Cookie": "seen=" + id,
	}, text}
	switch query.Get("as") {
	case "binary":
		a.header["Content-Type"] = "application/octet-stream"
		a.body = append(text, 0, 0xff, 0xfe, 0x80, '\r', '\n')
	case "large":
		a.header["Content-Type"] = "text/plain"
		a.body = append(text, strings.Repeat("0123456789abcdef", 1<<16)...)
	case "empty":
		a.body = nil
		delete(a.header, "Content-Type")
	case "redirect":
		a.status = http.StatusSeeOther
	}
	return a, err
}
