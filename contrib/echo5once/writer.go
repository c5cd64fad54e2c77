package echo5once

import (
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/onceguard/onceguard/contrib/internal/adapter"
)

// outerWriter is what the middleware writes to: the response that the outer echo middlewares have, or a writer of
// theirs.
type outerWriter struct {
	http.ResponseWriter
	open     bool // the handler has not answered: an outer middleware or echo itself will
	bypassed bool // the same, and the middleware is to store a tombstone
}

// WriteHeader drops a 1xx status, which echo would take for the final one.
func (w *outerWriter) WriteHeader(status int) {
	if !w.open && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *outerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// response returns echo's own response below, nil if there is none.
func (w *outerWriter) response() *echo.Response {
	response, _ := echo.UnwrapResponse(w.ResponseWriter) // an error means that there is none
	return response
}

// Written reports to the middleware whether others have answered, or will answer, on this writer.
func (w *outerWriter) Written() bool {
	response := w.response()
	return w.bypassed || response != nil && response.Committed
}

// newResponse returns the response of a protected handler, which writes to under by way of inner.
func newResponse(under http.ResponseWriter, outer *outerWriter, logger *slog.Logger) (r *echo.Response, inner *adapter.EchoWriter) {
	inner = &adapter.EchoWriter{ResponseWriter: under}
	r = echo.NewResponse(inner, logger)
	r.Status = http.StatusOK
	if response := outer.response(); response != nil {
		r.Status = response.Status
	}
	inner.Response = adapter.EchoResponse{Status: &r.Status, Size: &r.Size, Committed: &r.Committed}
	return r, inner
}
