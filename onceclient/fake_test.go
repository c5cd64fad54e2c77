package onceclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/onceclient"
)

var errNetwork = errors.New("connection reset by the test")

// fakeBase is an http.RoundTripper that answers each try by a step, and all further ones by its last step. It records
// what was sent.
type fakeBase struct {
	steps []step

	at     []time.Time
	bodies []string
	heads  []http.Header
	open   int // response bodies that are not closed
}

// step answers one try. It may block until the context of req is done.
type step func(req *http.Request) (*http.Response, error)

func (f *fakeBase) RoundTrip(req *http.Request) (*http.Response, error) {
	body := ""
	if req.Body != nil {
		b, err := io.ReadAll(req.Body)
		req.Body.Close()
		if err != nil {
			return nil, err
		}
		body = string(b)
	}
	next := f.steps[min(len(f.at), len(f.steps)-1)]
	f.at = append(f.at, time.Now())
	f.bodies = append(f.bodies, body)
	f.heads = append(f.heads, req.Header)
	resp, err := next(req)
	if resp != nil && resp.Body != nil {
		f.open++
		resp.Body = &countedBody{ReadCloser: resp.Body, base: f}
	}
	return resp, err
}

func (f *fakeBase) tries() int { return len(f.at) }

// key returns the key of the first try.
func (f *fakeBase) key() string { return f.heads[0].Get("Idempotency-Key") }

type countedBody struct {
	io.ReadCloser
	base   *fakeBase
	closed bool
}

func (b *countedBody) Close() error {
	if !b.closed {
		b.closed = true
		b.base.open--
	}
	return b.ReadCloser.Close()
}

func fail(*http.Request) (*http.Response, error) { return nil, errNetwork }

// hang answers when the context of the try is done.
func hang(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// answer answers with a status, a body and header lines such as "Retry-After: 1".
func answer(status int, body string, header ...string) step {
	return func(req *http.Request) (*http.Response, error) {
		h := http.Header{}
		for _, line := range header {
			name, value, _ := strings.Cut(line, ": ")
			h.Add(name, value)
		}
		return &http.Response{
			StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h, Request: req,
			Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
		}, nil
	}
}

const problemJSON = "Content-Type: application/problem+json"

func problem(status int, name string, header ...string) step {
	return answer(status, `{"type":"urn:onceguard:problem:`+name+`"}`, append(header, problemJSON)...)
}

var created = answer(http.StatusCreated, "done")

const orders = "http://shop.test/orders"

func post(t *testing.T, ctx context.Context, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// send sends one POST through an http.Client and returns the response, its body read and closed.
func send(t *testing.T, ctx context.Context, base http.RoundTripper, opts ...onceclient.Option) (*http.Response, string, error) {
	t.Helper()
	return do(t, &http.Client{Transport: onceclient.New(base, opts...)}, post(t, ctx, orders, strings.NewReader("book")))
}

func do(t *testing.T, client *http.Client, req *http.Request) (*http.Response, string, error) {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		if resp != nil {
			t.Errorf("a response beside the error %v", err)
		}
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body), nil
}

func gaveUp(t *testing.T, err error) *onceclient.GaveUpError {
	t.Helper()
	var e *onceclient.GaveUpError
	if !errors.As(err, &e) {
		t.Fatalf("got %v (%T), want a GaveUpError", err, err)
	}
	return e
}

// readerBody is a response body that is read by a function.
type readerBody func([]byte) (int, error)

func (r readerBody) Read(p []byte) (int, error) { return r(p) }
func (r readerBody) Close() error               { return nil }
