package middleware

import (
	"context"
	"math/rand/v2"
	"time"
)

// retryJournal calls try after growing pauses, until it returns nil, the limit is over, or ctx is done; then once more.
func retryJournal(ctx context.Context, limit time.Duration, try func(context.Context) error) bool {
	end := time.Now().Add(limit)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, journalPause) {
		last := !sleep(ctx, pause/2+rand.N(pause/2))
		if !time.Now().Before(end) {
			return false
		}
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), journalTimeout)
		err := try(one)
		cancel()
		if err == nil || last {
			return err == nil
		}
	}
}

// sleep pauses for d. It reports false if ctx is done first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
