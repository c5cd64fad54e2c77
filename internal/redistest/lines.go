package redistest

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// lines keeps what a process writes until a test asks for it, so that no
// process waits for its test.
type lines struct {
	ended chan struct{} // closed when there will be no more

	mu     sync.Mutex
	unread []string
	news   chan struct{} // holds a token when unread is not empty
}

// readLines reads r to its end, and closes it.
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

// next waits for a line. Its error is io.EOF if there will be none.
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

// rest waits for the end.
func (l *lines) rest() (rest []string) {
	for {
		line, err := l.next()
		if err != nil {
			return rest
		}
		rest = append(rest, line)
	}
}
