package onceclient_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/onceclient"
)

// body is a request body without GetBody. It records that it was closed.
type body struct {
	io.Reader
	closed chan struct{}
}

func newBody(r io.Reader) *body { return &body{r, make(chan struct{})} }

func (b *body) Close() error {
	close(b.closed) // panics at a second Close
	return nil
}

func postBody(t *testing.T, ctx context.Context, b io.ReadCloser, length int64) *http.Request {
	t.Helper()
	req := post(t, ctx, orders, b)
	req.ContentLength = length
	return req
}

var (
	errUnreadable = errors.New("unreadable")
	unreadable    = readerBody(func([]byte) (int, error) { return 0, errUnreadable })
)

// What is sent in each try, of a body with this length, and with GetBody if it is not nil. Every body is closed once.
func TestBodies(t *testing.T) {
	t.Parallel()
	book := func() io.Reader { return strings.NewReader("book") }
	again := func() (io.ReadCloser, error) { return io.NopCloser(book()), nil }
	gone := func() (io.ReadCloser, error) { return nil, errUnreadable }
	later := answer(503, "later", "X-Should-Retry: true")
	for name, test := range map[string]struct {
		reader  io.Reader
		length  int64
		getBody func() (io.ReadCloser, error)
		maxBody int64
		steps   []step
		sent    string // the tries
		want    string // the response's body, or a part of the error's text
		unsure  bool   // the error is a GaveUpError
	}{
		"known length":           {book(), 4, nil, 4, []step{fail, later, created}, "book,book,book", "done", false},
		"unknown length":         {book(), -1, nil, 4, []step{fail, later, created}, "book,book,book", "done", false},
		"length not set":         {book(), 0, nil, 4, []step{fail, later, created}, "book,book,book", "done", false},
		"no limit":               {book(), -1, nil, math.MaxInt64, []step{created}, "book", "done", false},
		"long":                   {book(), 4, nil, 3, []step{later}, "book", "later", false},
		"long, of unknown":       {book(), -1, nil, 3, []step{later}, "book", "later", false},
		"none is kept":           {book(), -1, nil, 0, []step{later}, "book", "later", false},
		"long, and it fails":     {book(), 4, nil, 3, []step{fail}, "book", "1 try in 0s: " + errNetwork.Error(), true},
		"GetBody":                {book(), 4, again, 0, []step{fail, created}, "book,book", "done", false},
		"GetBody fails":          {book(), 4, gone, 0, []step{later}, "book", "unreadable", true},
		"error while it is read": {io.MultiReader(book(), unreadable), -1, nil, 9, []step{created}, "", "unreadable", false},
		"too short":              {book(), 5, nil, 9, []step{created}, "", "ContentLength", false},
		"too long":               {book(), 3, nil, 9, []step{created}, "", "ContentLength", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			base, b := &fakeBase{steps: test.steps}, newBody(test.reader)
			req := postBody(t, t.Context(), b, test.length)
			req.GetBody = test.getBody
			_, got, err := do(t, &http.Client{Transport: onceclient.New(base, onceclient.WithMaxBody(test.maxBody))}, req)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, test.want) || errors.As(err, new(*onceclient.GaveUpError)) != test.unsure {
				t.Errorf("%s: got %q, %v; want %q", name, got, err, test.want)
			}
			if sent := strings.Join(base.bodies, ","); sent != test.sent || sent != "" && base.key() == "" {
				t.Errorf("%s: sent %q, want %q", name, sent, test.sent)
			}
			<-b.closed
		})
	}
}

// A body that waits for its writer is closed by a cancellation, and nothing waits for it.
func TestBodyAfterACancellation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		b, w := io.Pipe()
		base, began := &fakeBase{steps: []step{created}}, time.Now()
		_, _, err := do(t, &http.Client{Transport: onceclient.New(base)}, postBody(t, ctx, b, -1))
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 3*time.Second || base.tries() != 0 {
			t.Errorf("got %v after %v and %d tries", err, took, base.tries())
		}
		if _, err := w.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the body is open: %v", err)
		}
	})
}

// A RoundTripper must not modify the request.
func TestRequestIsNotModified(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		req := post(t, t.Context(), orders, strings.NewReader("book"))
		req.Header.Set("X-Mine", "1")
		req.GetBody = nil
		before, header := *req, req.Header.Clone()
		base := &fakeBase{steps: []step{fail, created}}
		resp, err := onceclient.New(base).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if !reflect.DeepEqual(*req, before) || !reflect.DeepEqual(req.Header, header) || base.heads[1].Get("X-Mine") != "1" {
			t.Errorf("got %+v, want %+v; sent %v", *req, before, base.heads[1])
		}
	})
}

// fault: the server answers before it has read the body, which is then still being sent
func TestEarlyAnswer(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	var tries atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tries.Add(1) < 5 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if n, err := io.Copy(io.Discard, r.Body); n != size || err != nil {
			t.Errorf("the server read %d bytes, %v", n, err)
		}
	}))
	defer server.Close()
	client := newClient(t, onceclient.WithMaxBody(size))
	kept := io.MultiReader(strings.NewReader(strings.Repeat("x", size)))
	if resp, _, err := do(t, client, post(t, t.Context(), server.URL, kept)); err != nil || resp.StatusCode != 200 {
		t.Errorf("got %v, %v after %d tries", resp, err, tries.Load())
	}
}

// newClient returns a client with short pauses and a connection pool of its own. Times are real in its tests.
func newClient(t *testing.T, opts ...onceclient.Option) *http.Client {
	t.Helper()
	opts = append(opts, onceclient.WithBackoff(time.Millisecond, 5*time.Millisecond))
	client := &http.Client{Transport: onceclient.New(&http.Transport{}, opts...)}
	t.Cleanup(client.CloseIdleConnections)
	return client
}
