package sqljournal_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// client sends one request until it is answered, with the journal alone: there is no lock.
type client struct {
	j    *sqljournal.Journal
	key  journal.Run
	name string
}

// ask returns the answer. A try that fails or is refused is repeated, as by a client that retries.
func (c client) ask(t *testing.T, deadline time.Time) string {
	var undone []journal.Run
	for try := 0; time.Now().Before(deadline); try++ {
		for _, run := range undone { // its Begin may have arrived after it was undone
			_, _ = c.j.End(context.Background(), run, nil, 0)
		}
		run := retried(c.key)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		e, err := c.j.Begin(ctx, run)
		if err != nil {
			e, err = c.j.Begin(ctx, run) // the middleware does this, too
		}
		cancel()
		switch {
		case err != nil:
			for err != nil && time.Now().Before(deadline) { // a row may be there that nobody would end
				_, err = c.j.End(context.Background(), run, nil, 0)
			}
			undone = append(undone, run)
		case e.State == journal.Done:
			return string(e.Record)
		case e.State == journal.Absent || e.State == journal.Begun:
			run.Intent = e.State == journal.Begun
			if answer := c.handle(run, fmt.Sprint(c.name, " try ", try), deadline); answer != "" {
				return answer
			}
		}
	}
	t.Errorf("%s of %s is not answered", c.name, c.key.Key)
	return ""
}

// handle runs the handler. It returns "" if the client has to repeat the request.
func (c client) handle(run journal.Run, response string, deadline time.Time) string {
	x, ctx := protected(c.j, run, response)
	for time.Now().Before(deadline) {
		switch err := c.j.InTx(ctx, nil, func(tx *sql.Tx) error { return take(tx, run) }); err {
		case nil:
			return response
		case journal.ErrAnswered:
			return string(x.answer)
		}
	}
	return ""
}

// fault: all connections break every few milliseconds, while several clients send each request at once. Each request has
// one effect and one answer.
func TestConnectionsBreakAllTheTime(t *testing.T) {
	t.Parallel()
	eachServerMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		const requests, clients = 16, 4
		s := newScene(t, d, mode)
		stop := make(chan struct{})
		var breaking, asking sync.WaitGroup
		breaking.Go(func() {
			// The pauses grow, so that on a busy machine a client gets through as well.
			for pause := 50 * time.Millisecond; ; pause += pause / 20 {
				select {
				case <-time.After(pause):
					s.proxy.Cut()
				case <-stop:
					return
				}
			}
		})
		answers := make([][clients]string, requests)
		keys := make([]journal.Run, requests)
		deadline := time.Now().Add(time.Minute)
		for i := range requests {
			keys[i] = newRun(time.Hour)
			for n := range clients {
				asking.Go(func() {
					answers[i][n] = client{s.j, keys[i], fmt.Sprint("client ", n)}.ask(t, deadline)
				})
			}
		}
		asking.Wait()
		close(stop)
		breaking.Wait()
		for i, key := range keys {
			mustHaveEffects(t, s.db, key, 1)
			for _, answer := range answers[i] {
				if answer != answers[i][0] {
					t.Errorf("two answers: %q and %q", answer, answers[i][0])
				}
			}
		}
	})
}
