package adaptertest

import "github.com/onceguard/onceguard/middleware"

// careless is an HTTPErrorHandler that does not check Committed. echo calls it again after the middlewares have returned,
// and it must not add a second response to the first.
func careless(_ error, c Context) { _ = c.String(402, "careless") }

// asksBefore is a middleware that asks echo to call it before the response.
func asksBefore(next Handler) Handler {
	return func(c Context) error {
		header := c.Writer().Header()
		header.Set(givenUp, "1")
		c.(interface{ Before(f func()) }).Before(func() { header.Del(givenUp) })
		return next(c)
	}
}

// EchoRows are what echo v4 and v5 have in common.
func (f Framework) EchoRows() map[string]Row {
	shadow := middleware.WithShadow()
	stored := Stored(402, "careless")
	failed := Freed(500, "*")
	return map[string]Row{
		"an error":             {Fail, []any{careless}, stored},
		"an error, in shadow":  {Fail, []any{careless, shadow}, stored},
		"an error, compressed": {Fail, []any{careless, f.Gzip}, stored},
		"an answer, and an error": {func(c Context) error {
			_ = Pay(c)
			return ErrNoCover
		}, []any{careless}, Stored(201, "paid")},
		"hijacked, and an error": {func(c Context) error {
			_ = hijack(c)
			return ErrNoCover
		}, nil, []Want{hijacked}},
		"asked for Before": {Pay, []any{Middleware(asksBefore)}, Stored(201, "paid")},
		"body limit without a key": {answer, []any{f.Limit}, []Want{
			{Status: 413, Body: "*", Outcome: middleware.Unprotected, Send: "too long", NoKey: true},
		}},
		"body limit in shadow": {answer, []any{f.Limit, shadow}, []Want{
			{Status: 413, Body: "*", Outcome: middleware.TooLarge, Send: "too long"},
		}},
		// What echo drops of an answer after a transaction that was rolled back is no success. An error is the response.
		"rolled back, a status alone": RolledBack(1, func(c Context, j *Journal) error {
			_ = j.InTx(c, Pay)
			return c.NoContent(402)
		}, failed[:1]),
		"rolled back, a bare write": RolledBack(1, func(c Context, j *Journal) error {
			_ = j.InTx(c, Pay)
			_, err := c.Writer().Write([]byte("failed"))
			return err
		}, failed[:1]),
		"rolled back, an error after a 103": RolledBack(1, func(c Context, j *Journal) error {
			_ = EarlyHints(c)
			_ = j.InTx(c, Pay)
			return c.Fail(402)
		}, Stored(402, "{\"message\":\"failed\"}\n")),
	}
}
