package echoonce

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/onceguard/onceguard/contrib/internal/adapter"
)

// outerWriter is what the middleware writes to: the response that the outer echo middlewares have.
type outerWriter struct {
	*echo.Response
	adapter.Open
}

// WriteHeader sends a 1xx status below echo's response, which would take it for the final one.
func (w *outerWriter) WriteHeader(status int) {
	if !adapter.IsFinal(status) {
		w.Writer.WriteHeader(status)
		return
	}
	w.Response.WriteHeader(status)
}

// Unwrap returns the response, for http.ResponseController.
func (w *outerWriter) Unwrap() http.ResponseWriter { return w.Response }

// Written reports to the middleware whether others have answered on this writer.
func (w *outerWriter) Written() bool { return w.Committed }

// answered returns a response that looks as this one and drops what is written to it.
func (w *outerWriter) answered(e *echo.Echo) *echo.Response {
	r := echo.NewResponse(adapter.Answered{ResponseWriter: w.Response}, e)
	r.Status, r.Size, r.Committed = w.Status, w.Size, w.Committed
	return r
}

// newResponse returns the response of a protected handler, which writes to under by way of inner.
func newResponse(under http.ResponseWriter, outer *echo.Response, e *echo.Echo) (r *echo.Response, inner *adapter.EchoWriter) {
	inner = &adapter.EchoWriter{ResponseWriter: under}
	r = echo.NewResponse(inner, e)
	r.Status = outer.Status
	inner.Response = adapter.EchoResponse{Status: &r.Status, Size: &r.Size, Committed: &r.Committed}
	return r, inner
}
