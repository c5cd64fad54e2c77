package middleware_test

import (
	"context"
	"net/http/httptrace"
	"net/textproto"
)

// traceHints calls f for every informational response.
func traceHints(ctx context.Context, f func(status int, link string)) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			f(code, h.Get("Link"))
			return nil
		},
	})
}
