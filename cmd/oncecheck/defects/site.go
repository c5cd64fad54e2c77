package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
)

// A site is two instances of the API on one store.
type site struct {
	defect    defect
	store     store
	mu        sync.Mutex // held during a restart
	instances [2]atomic.Pointer[server]
	kill      context.CancelFunc // of the instances
	listeners [2]*httptest.Server
}

// startSite starts a site with the defect on loopback ports.
func startSite(d defect) *site {
	s := &site{defect: d, kill: func() {}}
	s.restart()
	for i := range s.listeners {
		s.listeners[i] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(i, w, r) }))
	}
	return s
}

// restart kills the instances and starts them again. Requests that run lose their connection, and the store refuses what
// they do from then on.
func (s *site) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.restart(s.kill)
	killed, kill := context.WithCancel(context.Background())
	s.kill = kill
	for i := range s.instances {
		instance := newServer(process{&s.store, killed}, fmt.Sprint(i))
		if s.defect.spoil != nil {
			s.defect.spoil(instance)
		}
		s.instances[i].Store(instance)
	}
}

func (s *site) close() {
	s.kill()
	for _, l := range s.listeners {
		l.CloseClientConnections()
		l.Close()
	}
}

// serve serves an instance, and what oncecheck's flags need: the number of payments, a restart, and the end and the return
// of the store.
func (s *site) serve(i int, w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/effects":
		fmt.Fprintln(w, len(s.store.of("")))
	case "/restart":
		s.restart()
	case "/down", "/up":
		s.store.setDown(r.URL.Path == "/down")
	default:
		s.instances[i].Load().ServeHTTP(w, r)
	}
}

// url is that of a path of an instance.
func (s *site) url(i int, path string) string { return s.listeners[i].URL + path }

// command is one for sh that has the site do what the path says.
func (s *site) command(path string) string { return "curl -fsS -X POST " + s.url(0, path) }

// questions are the arguments with which oncecheck asks everything.
func (s *site) questions() []string {
	questions := []string{
		"-at-most-once", "-H", "Authorization: Bearer ann", "-H2", "Authorization: Bearer bob", "-d", `{"amount":{{n}}}`,
		"-also", s.url(1, "/payments"), "-effects", s.url(0, "/effects"),
		"-slow", "slow=2s", "-slow", "late=2s", "-fail", "fail=after", "-fail", "fail=before", "-fail", "fail=panic",
		"-sample", "as=binary", "-sample", "as=large", "-sample", "as=empty", "-sample", "as=other",
		"-restart", s.command("/restart"), "-store-down", s.command("/down"), "-store-up", s.command("/up"),
		"-timeout", "20s", "-patience", "60s",
	}
	return append(append(questions, s.defect.flags...), s.url(0, "/payments"))
}
