package redistest

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// lines keeps the lines that a process writes until the test reads them, so that the process never blocks on its test.
type lines struct {
	ended chan struct{} // closed after the last line

	mu     sync.Mutex
	unread []string
	news   chan struct{} // holds a token when unread is not empty
}

// readLines returns the lines of r. A goroutine reads r to its end and closes it.
func readLines(r io.ReadCloser) *lines {
	l := &lines{ended: make(chan struct{}), news: make(chan struct{}, 1)}
	go func() {
		defer close(l.ended)
		defer r.Close()
		in := bufio.NewReader(r)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			l.add(strings.TrimSuffix(line, "\n"))
		}
	}()
	return l
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unread = append(l.unread, line)
	if len(l.unread) == 1 {
		l.news <- struct{}{}
	}
}

// next waits for the next line. The error is io.EOF after the last one.
func (l *lines) next() (string, error) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	select {
	case <-l.news:
	case <-l.ended:
		select {
		case <-l.news:
		default:
			return "", io.EOF
		}
	case <-deadline.C:
		return "", fmt.Errorf("none within %v", patience)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.unread[0]
	l.unread = l.unread[1:]
	if len(l.unread) > 0 {
		l.news <- struct{}{}
	}
	return line, nil
}

// rest waits for the end and returns the lines that next has not returned.
func (l *lines) rest() (rest []string) {
	for {
		line, err := l.next()
		if err != nil {
			return rest
		}
		rest = append(rest, line)
	}
}
