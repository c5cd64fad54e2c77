package main

import (
	"cmp"
	"fmt"
	"sync"
	"time"
)

// showProgress shows which of the checks is running, and for how long. A terminal has one line that changes; elsewhere a line
// is written when a check takes long. The caller says when the next begins, and when it all ends.
func showProgress(env environment, of int) (next func(id string), end func()) {
	tick := 15 * time.Second
	if env.terminal {
		tick = time.Second
	}
	tick = cmp.Or(env.tick, tick)
	ids := make(chan string)
	var done sync.WaitGroup
	done.Go(func() {
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for n, id, began := 0, "the first operations", time.Now(); ; {
			select {
			case following, more := <-ids:
				if !more {
					return
				}
				n, id, began = n+1, following, time.Now()
				if env.terminal {
					fmt.Fprintf(env.stderr, clearLine+"%d of %d: %s", n, of, id)
				}
			case <-ticker.C:
				switch took := time.Since(began); {
				case env.terminal:
					fmt.Fprintf(env.stderr, clearLine+"%d of %d: %s, %.0f s", n, of, id, took.Seconds())
				case took >= tick:
					fmt.Fprintf(env.stderr, "oncecheck: %d of %d: %s, %.0f s\n", n, of, id, took.Seconds())
				}
			}
		}
	})
	return func(id string) { ids <- id }, sync.OnceFunc(func() {
		close(ids)
		done.Wait()
		if env.terminal {
			fmt.Fprint(env.stderr, clearLine)
		}
	})
}

const clearLine = "\r\x1b[K"
