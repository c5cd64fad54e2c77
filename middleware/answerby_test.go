package middleware_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// A wait ends early enough for its answer to be sent: a tenth of the time before the server's limit and the deadline, half a
// second at most.
func TestWaitEndsInTime(t *testing.T) {
	t.Parallel()
	const second, ms = time.Second, time.Millisecond
	for name, test := range map[string]struct{ writeTimeout, deadline, want time.Duration }{ // 0: none
		"neither":                           {0, 0, 0},
		"a tenth before the timeout":        {2 * second, 0, 1800 * ms},
		"half a second before the timeout":  {20 * second, 0, 19500 * ms},
		"a tenth before the deadline":       {0, 3 * second, 2700 * ms},
		"half a second before the deadline": {0, 20 * second, 19500 * ms},
		"timeout before deadline":           {10 * second, 20 * second, 9500 * ms},
		"deadline before timeout":           {20 * second, 10 * second, 9500 * ms},
	} {
		arrived := time.Now()
		ctx := context.WithValue(t.Context(), http.ServerContextKey, &http.Server{WriteTimeout: test.writeTimeout})
		if test.deadline > 0 {
			withDeadline, cancel := context.WithDeadline(ctx, arrived.Add(test.deadline))
			defer cancel()
			ctx = withDeadline
		}
		want := time.Time{}
		if test.want > 0 {
			want = arrived.Add(test.want)
		}
		if got := middleware.AnswerBy(ctx, arrived); !got.Equal(want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
