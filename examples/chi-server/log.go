package main

import (
	"context"
	"log/slog"
	"net/http"

	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/onceguard/onceguard/middleware"
)

// logEvents returns an observer that logs one line for every protected request. The line has the hashed key, but not
// the client's key, the user, or any body.
func logEvents(log *slog.Logger) func(context.Context, middleware.Event) {
	return func(ctx context.Context, e middleware.Event) {
		attrs := []slog.Attr{
			slog.String("outcome", string(e.Outcome)),
			slog.Int("status", e.Status),
			slog.String("key", e.Key),
			slog.Duration("claim", e.Claim.Duration),
			slog.Duration("handler", e.Handler.Duration),
			slog.Duration("settle", e.Settle.Duration),
			slog.String("request", chimiddleware.GetReqID(ctx)),
		}
		if e.Err != nil {
			attrs = append(attrs, slog.String("err", e.Err.Error()))
		}
		log.LogAttrs(ctx, level(e), "protected request", attrs...)
	}
}

// level returns Info for normal outcomes, Warn for what concerns one client, and Error for what concerns the operator
// of the server.
func level(e middleware.Event) slog.Level {
	switch e.Outcome {
	case middleware.Executed, middleware.Replayed, middleware.InFlight:
		return slog.LevelInfo
	case middleware.StoreUnavailable, middleware.LeaseLost, middleware.Unknown, middleware.Panicked:
		return slog.LevelError
	}
	if e.Err != nil && e.Status != http.StatusBadRequest || e.Status >= http.StatusInternalServerError {
		return slog.LevelError
	}
	return slog.LevelWarn
}
