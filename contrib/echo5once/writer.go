package echo5once

import (
	"bufio"
	"log/slog"
	"net"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/onceguard/onceguard/contrib/internal/adapter"
)

// outerWriter is what the middleware writes to: the response that the outer echo middlewares have, or a writer of
// theirs.
type outerWriter struct {
	http.ResponseWriter
	adapter.Open
}

// WriteHeader sends a 1xx status below echo's response, which would take it for the final one.
func (w *outerWriter) WriteHeader(status int) {
	if !adapter.IsFinal(status) {
		w.below().WriteHeader(status)
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// Hijack makes w a http.Hijacker, as echo's own response is: with WithShadow the handler's writer is one if w is.
func (w *outerWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *outerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// response returns echo's own response below, nil if there is none.
func (w *outerWriter) response() *echo.Response {
	response, _ := echo.UnwrapResponse(w.ResponseWriter) // an error means that there is none
	return response
}

// below returns the writer below echo's own response, or below w if there is none.
func (w *outerWriter) below() http.ResponseWriter {
	if response := w.response(); response != nil {
		return response.ResponseWriter
	}
	return w.ResponseWriter
}

// Written reports to the middleware whether others have answered on this writer.
func (w *outerWriter) Written() bool {
	response := w.response()
	return response != nil && response.Committed
}

// handlerWriter is the writer of a protected handler: echo's response, but for a 1xx status. echo would take it for the
// final one, and drop the status that the handler sets after it.
type handlerWriter struct {
	*echo.Response
	inner *adapter.EchoWriter // below the response
}

// WriteHeader sends a 1xx status below echo's response.
func (w handlerWriter) WriteHeader(status int) {
	if !adapter.IsFinal(status) {
		w.inner.WriteHeader(status)
		return
	}
	w.Response.WriteHeader(status)
}

// Unwrap returns echo's response, for echo.UnwrapResponse and http.ResponseController.
func (w handlerWriter) Unwrap() http.ResponseWriter { return w.Response }

// newResponse returns the writer of a protected handler, which writes to under.
func newResponse(under http.ResponseWriter, outer *outerWriter, logger *slog.Logger) handlerWriter {
	inner := &adapter.EchoWriter{ResponseWriter: under}
	r := echo.NewResponse(inner, logger)
	r.Status = http.StatusOK
	if response := outer.response(); response != nil {
		r.Status = response.Status
	}
	inner.Response = adapter.EchoResponse{Status: &r.Status, Size: &r.Size, Committed: &r.Committed}
	return handlerWriter{r, inner}
}
