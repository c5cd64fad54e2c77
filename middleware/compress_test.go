package middleware_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// A minimum below any record, and none.
func TestCompressionMinimum(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for want, min := range map[bool]int{true: 500, false: 5000} {
			b.FlushAll(t)
			s := serve(t, b, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, strings.Repeat("payment ", 500))
			}, middleware.WithCompression(min))
			e := s.want(s.send(), http.StatusOK, middleware.Executed)
			if got := len(rawOf(t, b, e.Key)) < 1000; got != want {
				t.Errorf("WithCompression(%d): compressed: %v", min, got)
			}
			s.want(s.send(), http.StatusOK, middleware.Replayed)
		}
	})
}
