package oncetest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/oncetest"
)

// Run ends when its limit is over, although handlers hang. It says what is missing and what it left out.
func TestRunOfAHandlerThatHangs(t *testing.T) {
	t.Parallel()
	const noAnswer = "oncetest: double click: Case.Limit, 1s, was over before there was an answer to the first request, "
	for effects, want := range map[int64]string{1: noAnswer + "which has had its effect.", 0: noAnswer + "or an effect."} {
		p, goOn, returned := new(payments), make(chan struct{}), make(chan struct{})
		r := &recorder{TB: t}
		oncetest.Run(r, oncetest.Case{
			Handler: func(redis.UniversalClient) http.Handler {
				return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					defer close(returned)
					p.n.Add(effects)
					<-goOn
				})
			},
			Request: payment("ann", "1250"), Effects: p.count, OtherUser: payment("bob", "1250"), Limit: time.Second,
		})
		close(goOn)
		<-returned
		const leftOut = "oncetest: left out: lost response, crash, slow client, other user, panic."
		if len(r.fails) != 2 || !strings.HasPrefix(r.fails[0], want) || !strings.HasPrefix(r.fails[1], leftOut) {
			t.Errorf("got %q, want %q and %q", r.fails, want, leftOut)
		}
	}
}
