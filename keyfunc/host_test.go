package keyfunc_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/onceguard/onceguard/keyfunc"
)

// fault: one user id and one key on two hosts -> two requests
func TestHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"shop.example": "shop.example", "Shop.EXAMPLE": "shop.example", "shop.example:8443": "shop.example:8443",
		"[::1]:80": "[::1]:80", "bank.example": "bank.example",
	} {
		r := &http.Request{Host: host, Header: http.Header{"X-Forwarded-Host": {"forged.example"}}}
		if got, err := keyfunc.Host()(r); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", host, got, err, want)
		}
	}
	if _, err := keyfunc.Host()(new(http.Request)); !errors.Is(err, keyfunc.ErrInvalid) {
		t.Errorf("without a host: %v, want ErrInvalid", err)
	}
}
