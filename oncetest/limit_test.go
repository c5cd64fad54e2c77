package oncetest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/oncetest"
)

// Run ends when its limit is over, although handlers hang. It says what is missing and what it left out, and then where
// the handlers of this Run are, and not those of others.
func TestRunOfAHandlerThatHangs(t *testing.T) {
	t.Parallel()
	const noAnswer = "oncetest: double click: Case.Limit, 1s, was over before there was an answer to the first request, "
	for name, test := range map[string]struct {
		effects int64
		fail    string
	}{
		"after its effect":  {1, noAnswer + "which has had its effect."},
		"before its effect": {0, noAnswer + "or an effect."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, goOn, returned := new(payments), make(chan struct{}), make(chan struct{})
			r := &recorder{TB: t}
			oncetest.Run(r, oncetest.Case{
				Handler: func(redis.UniversalClient) http.Handler {
					return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
						defer close(returned)
						p.n.Add(test.effects)
						hang(goOn)
					})
				},
				Request: payment("ann", "1250"), Effects: p.count, OtherUser: payment("bob", "1250"), Limit: time.Second,
			})
			close(goOn)
			<-returned
			if len(r.lines) != 3 || len(r.fails) != 2 {
				t.Fatalf("got %q", r.lines)
			}
			if !strings.HasPrefix(r.lines[0], test.fail) {
				t.Errorf("the first line is %q", r.lines[0])
			}
			if !strings.HasPrefix(r.lines[1], "oncetest: left out: lost response, crash, slow client, other user, panic.") {
				t.Errorf("the second line is %q", r.lines[1])
			}
			if n := strings.Count(r.lines[2], "oncetest_test.hang("); n != 1 || strings.Count(r.lines[2], "goroutine ") != 2 {
				t.Errorf("%d stacks of the handler in %s", n, r.lines[2])
			}
		})
	}
}

func hang(until <-chan struct{}) { <-until }
