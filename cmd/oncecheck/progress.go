package main

import (
	"cmp"
	"fmt"
	"io"
	"sync"
	"time"
)

// progress shows which check is running, and for how long. A terminal has one line that changes; elsewhere a line is written
// when a check takes long.
type progress struct {
	w        io.Writer
	terminal bool
	of       int
	ended    chan struct{}
	done     sync.WaitGroup

	mu    sync.Mutex
	n     int
	id    string
	began time.Time
}

func newProgress(env environment, of int) *progress {
	tick := 15 * time.Second
	if env.terminal {
		tick = time.Second
	}
	p := &progress{w: env.stderr, terminal: env.terminal, of: of, ended: make(chan struct{}), id: "the first operations", began: time.Now()}
	p.done.Go(func() { p.show(cmp.Or(env.tick, tick)) })
	return p
}

// show shows now and then what is running, until the end.
func (p *progress) show(tick time.Duration) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.mu.Lock()
			if took := time.Since(p.began); p.terminal || took >= tick {
				p.write(fmt.Sprintf(", %.0f s", took.Seconds()))
			}
			p.mu.Unlock()
		case <-p.ended:
			return
		}
	}
}

// write writes the line. The caller holds p.mu.
func (p *progress) write(took string) {
	line := fmt.Sprintf("%d of %d: %s%s", p.n, p.of, p.id, took)
	if p.terminal {
		line = "\r\x1b[K" + line
	} else {
		line = "oncecheck: " + line + "\n"
	}
	_, _ = io.WriteString(p.w, line)
}

// next says that the next check begins.
func (p *progress) next(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n, p.id, p.began = p.n+1, id, time.Now()
	if p.terminal {
		p.write("")
	}
}

// end ends the line. It may be called again.
func (p *progress) end() {
	select {
	case <-p.ended:
		return
	default:
	}
	close(p.ended)
	p.done.Wait()
	if p.terminal {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
	}
}
