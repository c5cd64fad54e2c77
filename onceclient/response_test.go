package onceclient_test

import (
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/onceclient"
)

const mib = 1 << 20

// withLength changes the Content-Length of a step's response. -1 is an unknown one.
func withLength(s step, n int64) step {
	return func(req *http.Request) (*http.Response, error) {
		resp, err := s(req)
		resp.ContentLength = n
		return resp, err
	}
}

// A response that breaks off within the first MiB is repeated under the same key.
func TestResponseBreaksOff(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", mib)
	for name, first := range map[string]step{
		"created":           broken(201, "hal"),
		"at once":           broken(201, ""),
		"unknown length":    withLength(broken(200, "hal"), -1),
		"last byte":         withLength(broken(200, long), -1),
		"not found":         broken(404, "hal"),
		"problem":           broken(422, `{"type":"urn:oncegu`, problemJSON),
		"replayed":          broken(201, "hal", "Idempotent-Replayed: true"),
		"moved":             broken(307, "hal", "Location: /elsewhere"),
		"breaks off anew":   broken(503, long),
		"should not repeat": broken(409, "hal", "X-Should-Retry: false"),
	} {
		t.Run(name, func(t *testing.T) { checkStep(t, first, true) })
	}
}

// What is not read within the try reaches the caller as it comes, and is not repeated if it breaks off.
func TestResponsesThatAreStreamed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", mib+1)
	for name, test := range map[string]struct {
		first step
		sent  string // what comes before the body breaks off
		once  bool   // whether the request can be sent once
		opts  []onceclient.Option
	}{
		"known length":        {first: withLength(broken(200, "hal"), mib+1), sent: "hal"},
		"more than 1 MiB":     {first: withLength(broken(200, long), -1), sent: long},
		"events":              {first: broken(200, "hal", "Content-Type: text/event-stream; charset=utf-8"), sent: "hal"},
		"request sent once":   {first: broken(200, "hal"), sent: "hal", once: true},
		"503, sent once":      {first: broken(503, "hal"), sent: "hal", once: true},
		"no response is kept": {first: broken(200, "hal"), sent: "hal", opts: []onceclient.Option{onceclient.WithMaxResponse(0)}},
		"2 bytes are kept":    {first: withLength(broken(200, "hal"), -1), sent: "hal", opts: []onceclient.Option{onceclient.WithMaxResponse(2)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &fakeBase{steps: []step{test.first, created}}
				req := postBody(t, t.Context(), newBody(strings.NewReader("book")), -1)
				if test.once {
					test.opts = append(test.opts, onceclient.WithMaxBody(0))
				}
				resp, err := onceclient.New(base, test.opts...).RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if string(got) != test.sent || !errors.Is(err, io.ErrUnexpectedEOF) || base.tries() != 1 {
					t.Errorf("got %d bytes, %v after %d tries", len(got), err, base.tries())
				}
				if base.open != 0 {
					t.Errorf("%d response bodies were not closed", base.open)
				}
			})
		})
	}
}

// stalling answers with a body that comes a minute after the header.
func stalling(status int, header ...string) step {
	return func(req *http.Request) (*http.Response, error) {
		resp, err := answer(status, "", header...)(req)
		resp.ContentLength = -1
		resp.Body = readerBody(func(p []byte) (int, error) {
			select {
			case <-req.Context().Done():
				return 0, req.Context().Err()
			case <-time.After(time.Minute):
				return copy(p, "late"), io.EOF
			}
		})
		return resp, err
	}
}

// A body that stalls ends with the try. One that is streamed is not part of a try.
func TestStalledBody(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]step{"503": stalling(503), "201": stalling(201)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &fakeBase{steps: []step{first, created}}
				began := time.Now()
				if _, body, err := send(t, t.Context(), base, onceclient.WithTryTimeout(5*time.Second)); body != "done" || err != nil {
					t.Errorf("got %q, %v", body, err)
				}
				if took := time.Since(began); took < 5*time.Second || took > 6*time.Second {
					t.Errorf("it took %v", took)
				}
				if base.open != 0 {
					t.Errorf("%d response bodies were not closed", base.open)
				}
			})
		})
	}
	for name, first := range map[string]step{
		"known length": withLength(stalling(201), mib+1), "events": stalling(200, "Content-Type: text/event-stream"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &fakeBase{steps: []step{first}}
				_, body, err := send(t, t.Context(), base, onceclient.WithTryTimeout(5*time.Second), onceclient.WithLimit(10*time.Second))
				if body != "late" || err != nil {
					t.Errorf("got %q, %v; want a body that comes after the limit", body, err)
				}
			})
		})
	}
}

// Every try uses the same connection: what a response leaves unread is read, up to a bound.
func TestConnectionIsReused(t *testing.T) {
	t.Parallel()
	var connections, tries atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if tries.Add(1)%4 != 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 40<<10))
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	client := newClient(t)
	for range 2 {
		resp, err := client.Do(post(t, t.Context(), server.URL, strings.NewReader("book")))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close() // unread
	}
	if tries.Load() != 8 || connections.Load() != 1 {
		t.Errorf("%d connections for %d tries", connections.Load(), tries.Load())
	}
}

// The largest limits are no limits.
func TestLargestLimits(t *testing.T) {
	t.Parallel()
	base := &fakeBase{steps: []step{withLength(answer(200, "done"), -1)}}
	transport := onceclient.New(base, onceclient.WithMaxBody(math.MaxInt64), onceclient.WithMaxResponse(math.MaxInt64))
	_, body, err := do(t, &http.Client{Transport: transport}, postBody(t, t.Context(), newBody(strings.NewReader("book")), -1))
	if err != nil || body != "done" || base.bodies[0] != "book" {
		t.Errorf("sent %q, got %q, %v", base.bodies, body, err)
	}
}
