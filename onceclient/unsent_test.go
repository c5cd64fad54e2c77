package onceclient_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
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
	unavailable := func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: http.NoBody}, nil
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
		"503, then refused":               {steps: []step{unavailable, refuse}, timedOut: true, err: errRefused},
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
				_, _, err := do(t, client, post(t, t.Context(), "http://shop.test", body))
				var gaveUp *onceclient.GaveUpError
				if err == nil || errors.As(err, &gaveUp) == test.unsent {
					t.Fatalf("%v (%T)", err, errors.Unwrap(err))
				}
				if test.err != nil && !errors.Is(err, test.err) {
					t.Errorf("%v, want an error that wraps %v", err, test.err)
				}
				var timeout interface{ Timeout() bool }
				if got := errors.As(err, &timeout) && timeout.Timeout(); got != test.timedOut {
					t.Errorf("Timeout of %v: %v, want %v", err, got, test.timedOut)
				}
				if isRepeated := base.tries() > 1; isRepeated == test.once {
					t.Errorf("%d tries", base.tries())
				}
			})
		})
	}
}

// invalid is a try whose request http.Transport rejects.
func invalid(req *http.Request) (*http.Response, error) {
	req.Header = http.Header{"X-Mine": {"two\nlines"}}
	return (&http.Transport{}).RoundTrip(req)
}
