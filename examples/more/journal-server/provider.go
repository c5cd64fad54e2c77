package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// providerTimeout is how long the service waits for an answer of the provider.
const providerTimeout = 5 * time.Second

// Definite answers of the provider. After any other error it is not known whether it has charged.
var (
	errDeclined  = errors.New("the provider has declined the charge")
	errNoCharge  = errors.New("the provider has no charge with this key")
	errNoReceipt = errors.New("the provider's answer has no receipt")
)

// provider is a client of the payment provider.
type provider struct {
	url    string
	client *http.Client
}

func newProvider(url string) *provider {
	return &provider{url: url, client: &http.Client{Timeout: providerTimeout}}
}

// charge charges the customer. The provider charges once for each key, however often it is asked.
func (p *provider) charge(ctx context.Context, key string, o order) (receipt string, err error) {
	body, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/charges", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	return p.receipt(r)
}

// find returns the receipt of the charge with this key, or errNoCharge.
func (p *provider) find(ctx context.Context, key string) (receipt string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/charges?key="+url.QueryEscape(key), nil)
	if err != nil {
		return "", err
	}
	return p.receipt(r)
}

func (p *provider) receipt(r *http.Request) (string, error) {
	res, err := p.client.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusPaymentRequired, res.StatusCode == http.StatusUnprocessableEntity:
		return "", errDeclined
	case res.StatusCode == http.StatusNotFound && r.Method == http.MethodGet:
		return "", errNoCharge
	case res.StatusCode != http.StatusOK:
		return "", fmt.Errorf("the provider answers %s", res.Status)
	}
	var answer struct {
		Receipt string `json:"receipt"`
	}
	err = json.NewDecoder(io.LimitReader(res.Body, 1<<10)).Decode(&answer)
	if err == nil && answer.Receipt == "" {
		err = errNoReceipt
	}
	return answer.Receipt, err
}
