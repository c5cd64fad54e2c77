package onceclient_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/onceclient"
)

var errRefused = &net.OpError{Op: "dial", Err: errors.New("connection refused by the test")}

// dialing returns a step that sends the request by an http.Transport with this Dialer.
func dialing(dial func() (net.Conn, error)) step {
	return func(req *http.Request) (*http.Response, error) {
		base := &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return dial() }, DisableKeepAlives: true,
		}
		req.Body = io.NopCloser(strings.NewReader("book")) // fakeBase has read it
		return base.RoundTrip(req)
	}
}

// fault: every connection of a client refused. If no try got a connection, nothing was sent, and the error is no
// GaveUpError. After one try that had a connection the outcome is unknown, and so it is with a base that does not tell.
func TestNothingWasSent(t *testing.T) {
	t.Parallel()
	refuse := dialing(func() (net.Conn, error) { return nil, errRefused })
	hang := dialing(func() (net.Conn, error) {
		time.Sleep(time.Hour) // http.Transport does not end a dial when its request ends
		return nil, errRefused
	})
	cutOff := dialing(func() (net.Conn, error) {
		client, server := net.Pipe()
		server.Close()
		return client, nil
	})
	untrusted := func(req *http.Request) (*http.Response, error) { // of the connection on which http.Transport sends it again
		trace := httptrace.ContextClientTrace(req.Context())
		trace.GetConn("")
		trace.GotConn(httptrace.GotConnInfo{})
		return nil, &tls.CertificateVerificationError{Err: errNetwork}
	}
	for name, test := range map[string]struct {
		steps    []step
		once     bool // whether the request can be sent once
		unsent   bool
		timedOut bool
		err      error // that the error wraps; nil: any
	}{
		"refused":                         {steps: []step{refuse}, unsent: true, timedOut: true, err: errRefused},
		"refused, no second try":          {steps: []step{refuse}, once: true, unsent: true, err: errRefused},
		"no connection in time":           {steps: []step{hang}, unsent: true, timedOut: true},
		"cut off, then refused":           {steps: []step{cutOff, refuse}, timedOut: true, err: errRefused},
		"refused, then cut off":           {steps: []step{refuse, cutOff}, timedOut: true},
		"503, then refused":               {steps: []step{answer(503, ""), refuse}, timedOut: true, err: errRefused},
		"sent, then untrusted":            {steps: []step{refuse, untrusted}, err: errNetwork},
		"refused, then invalid":           {steps: []step{refuse, invalid}, unsent: true},
		"cut off, then invalid":           {steps: []step{cutOff, invalid}},
		"refused by a base without hooks": {steps: []step{func(*http.Request) (*http.Response, error) { return nil, errRefused }}, timedOut: true, err: errRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(2 * time.Hour) // for dials that hang
				body, opts := io.Reader(strings.NewReader("book")), []onceclient.Option(nil)
				if test.once {
					body, opts = io.MultiReader(body), append(opts, onceclient.WithMaxBody(1))
				}
				base := &fakeBase{steps: test.steps}
				client := &http.Client{Transport: onceclient.New(base, opts...)}
				_, _, err := do(t, client, post(t, t.Context(), orders, body))
				if err == nil || errors.As(err, new(*onceclient.GaveUpError)) == test.unsent || test.err != nil && !errors.Is(err, test.err) {
					t.Fatalf("%v (%T), want %v", err, errors.Unwrap(err), test.err)
				}
				if isTimeout(err) != test.timedOut {
					t.Errorf("Timeout of %v: want %v", err, test.timedOut)
				}
				if isRepeated := base.tries() > 1; isRepeated == test.once {
					t.Errorf("%d tries", base.tries())
				}
			})
		})
	}
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// invalid is a try whose request http.Transport rejects.
func invalid(req *http.Request) (*http.Response, error) {
	req.Header = http.Header{"X-Mine": {"two\nlines"}}
	return (&http.Transport{}).RoundTrip(req)
}

// What a repetition cannot cure fails at once with the base's error, and nothing was sent.
func TestErrorsThatAreNotRepeated(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request arrived") }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer server.Close()
	to := func(url string, edit func(*http.Request)) *http.Request {
		req := post(t, t.Context(), url, strings.NewReader("book"))
		edit(req)
		return req
	}
	for name, req := range map[string]*http.Request{
		"untrusted certificate": to(server.URL, func(*http.Request) {}),
		"unsupported scheme":    to("shop://orders", func(*http.Request) {}),
		"relative URL":          to("/orders", func(*http.Request) {}),
		"no host":               to("http:///orders", func(*http.Request) {}),
		"no URL":                to(server.URL, func(r *http.Request) { r.URL = nil }),
		"invalid header":        to(server.URL, func(r *http.Request) { r.Header.Set("X-Mine", "two\nlines") }),
		"invalid trailer":       to(server.URL, func(r *http.Request) { r.Trailer = http.Header{"X-Mine": {"two\nlines"}} }),
		"length without a body": to(server.URL, func(r *http.Request) { r.Body = nil }),
	} {
		tries := 0
		client := newClient(t, onceclient.WithObserver(func(context.Context, onceclient.Attempt) { tries++ }))
		_, err := client.Transport.RoundTrip(req)
		if err == nil || errors.As(err, new(*onceclient.GaveUpError)) || tries > 1 {
			t.Errorf("%s: got %v after %d tries", name, err, tries)
		}
	}
}
