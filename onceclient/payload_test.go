package onceclient_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
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
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://shop.test/orders", b)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = length
	return req
}

func TestBodiesThatAreKept(t *testing.T) {
	t.Parallel()
	for name, length := range map[string]int64{"known length": 4, "unknown length": -1, "length not set": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &fakeBase{steps: []step{fail, answer(503, ""), created}}
				b := newBody(strings.NewReader("book"))
				_, content, err := do(t, &http.Client{Transport: onceclient.New(base, onceclient.WithMaxBody(4))}, postBody(t, t.Context(), b, length))
				if err != nil || content != "done" || strings.Join(base.bodies, ",") != "book,book,book" {
					t.Errorf("got %q, %v; sent %q", content, err, base.bodies)
				}
				<-b.closed
			})
		})
	}
}

// A body that is too long to be kept is sent whole and once, under a key.
func TestBodiesThatAreSentOnce(t *testing.T) {
	t.Parallel()
	for _, length := range []int64{5, -1} {
		for _, limit := range []int64{0, 4} {
			for name, first := range map[string]step{"503": answer(503, "later", "X-Should-Retry: true"), "fail": fail} {
				b, base := newBody(strings.NewReader("books")), &fakeBase{steps: []step{first}}
				client := &http.Client{Transport: onceclient.New(base, onceclient.WithMaxBody(limit))}
				resp, content, err := do(t, client, postBody(t, t.Context(), b, length))
				if name == "fail" {
					if e := gaveUp(t, err); !errors.Is(err, errNetwork) || e.Attempts != 1 || e.Key == "" || e.Timeout() {
						t.Errorf("got %v", err)
					}
				} else if err != nil || resp.StatusCode != 503 || content != "later" {
					t.Errorf("got %v, %q, %v", resp, content, err)
				}
				if len(base.bodies) != 1 || base.bodies[0] != "books" || base.heads[0].Get("Idempotency-Key") == "" {
					t.Errorf("sent %q with %v", base.bodies, base.heads)
				}
				<-b.closed
			}
		}
	}
}

func TestBodyWithGetBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{steps: []step{fail, created}}
		first, second := newBody(strings.NewReader("book")), newBody(strings.NewReader("book"))
		req := postBody(t, t.Context(), first, 4)
		req.GetBody = func() (io.ReadCloser, error) { return second, nil }
		if _, content, err := do(t, &http.Client{Transport: onceclient.New(base, onceclient.WithMaxBody(0))}, req); content != "done" || err != nil {
			t.Errorf("got %q, %v", content, err)
		}
		if strings.Join(base.bodies, ",") != "book,book" {
			t.Errorf("sent %q", base.bodies)
		}
		<-first.closed
		<-second.closed
	})
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{steps: []step{answer(503, "")}}
		gone := errors.New("the file is gone")
		req := postBody(t, t.Context(), newBody(strings.NewReader("book")), 4)
		req.GetBody = func() (io.ReadCloser, error) { return nil, gone }
		_, _, err := do(t, &http.Client{Transport: onceclient.New(base)}, req)
		if e := gaveUp(t, err); !errors.Is(err, gone) || e.Attempts != 2 || base.tries() != 1 {
			t.Errorf("got %v after %d tries", err, base.tries())
		}
	})
}

func TestNoBody(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]io.Reader{"nil": nil, "NoBody": http.NoBody} {
		synctest.Test(t, func(t *testing.T) {
			base := &fakeBase{steps: []step{fail, created}}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "http://shop.test/orders/7", b)
			if err != nil {
				t.Fatal(err)
			}
			if _, content, err := do(t, &http.Client{Transport: onceclient.New(base)}, req); content != "done" || err != nil {
				t.Errorf("%s: got %q, %v", name, content, err)
			}
		})
	}
}

// What is wrong with the body is told before anything is sent.
func TestBodyThatCannotBeRead(t *testing.T) {
	t.Parallel()
	unreadable := errors.New("unreadable")
	for name, test := range map[string]struct {
		reader io.Reader
		length int64
		want   string
	}{
		"error":     {io.MultiReader(strings.NewReader("bo"), readerBody(func([]byte) (int, error) { return 0, unreadable })), -1, "unreadable"},
		"too short": {strings.NewReader("boo"), 4, "ContentLength"},
		"too long":  {strings.NewReader("books"), 4, "ContentLength"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &fakeBase{steps: []step{created}}
				b := newBody(test.reader)
				_, _, err := do(t, &http.Client{Transport: onceclient.New(base)}, postBody(t, t.Context(), b, test.length))
				var e *onceclient.GaveUpError
				if err == nil || !strings.Contains(err.Error(), test.want) || errors.As(err, &e) || base.tries() != 0 {
					t.Errorf("got %v after %d tries", err, base.tries())
				}
				<-b.closed
			})
		})
	}
}

// The reader of a body may block, or go on: after a cancellation no more is read, and nothing waits for it.
func TestBodyAfterACancellation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		goOn, reads := make(chan struct{}), 0
		b := newBody(readerBody(func([]byte) (int, error) {
			reads++
			<-goOn
			return 1, nil
		}))
		base, began := &fakeBase{steps: []step{created}}, time.Now()
		_, _, err := do(t, &http.Client{Transport: onceclient.New(base)}, postBody(t, ctx, b, -1))
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 3*time.Second || base.tries() != 0 {
			t.Errorf("got %v after %v and %d tries", err, took, base.tries())
		}
		close(goOn)
		<-b.closed
		if reads != 1 {
			t.Errorf("%d reads", reads)
		}
	})
}

// RoundTrip closes the body also when it sends nothing.
func TestBodyIsClosed(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, ctx := range map[string]context.Context{
		"cancelled":   cancelled,
		"invalid key": onceclient.WithKey(t.Context(), ""),
	} {
		b := newBody(strings.NewReader("book"))
		if _, err := onceclient.New(&fakeBase{steps: []step{created}}).RoundTrip(postBody(t, ctx, b, 4)); err == nil {
			t.Errorf("%s: no error", name)
		}
		<-b.closed
	}
	b := newBody(strings.NewReader("book"))
	req := postBody(t, t.Context(), b, 4)
	req.GetBody = func() (io.ReadCloser, error) { return b, nil }
	req.URL = nil // http.Transport rejects it
	_, err := onceclient.New(&http.Transport{}).RoundTrip(req)
	var e *onceclient.GaveUpError
	if err == nil || errors.As(err, &e) {
		t.Errorf("without a URL: got %v", err)
	}
	<-b.closed
}

// A RoundTripper must not modify the request.
func TestRequestIsNotModified(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://shop.test/orders", bytes.NewReader([]byte("book")))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Mine", "1")
		req.GetBody = nil
		before, header := *req, req.Header.Clone()
		base := &fakeBase{steps: []step{fail, created}}
		resp, err := onceclient.New(base).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if !reflect.DeepEqual(*req, before) || !reflect.DeepEqual(req.Header, header) {
			t.Errorf("got %+v, want %+v", *req, before)
		}
		if base.heads[1].Get("X-Mine") != "1" {
			t.Errorf("sent %v", base.heads[1])
		}
	})
}
