package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/checktest"
)

// A site is two instances of the API on one store, and a listener that controls them.
type site struct {
	defect  defect
	folder  string
	store   *store
	mu      sync.Mutex     // held during a restart
	ports   [2]*os.File    // keep the ports of the instances during a restart
	running []*http.Server // the instances, and the controller as the last

	addresses [2]string // of the instances
	control   string    // the address of the controller
}

// startSite starts a site with the defect on loopback ports.
func startSite(d defect) (s *site, err error) {
	s = &site{defect: d}
	if s.folder, err = os.MkdirTemp("", "defects"); err != nil {
		return nil, err
	}
	if s.store, err = openStore(filepath.Join(s.folder, "store")); err != nil {
		return nil, err
	}
	for i := range s.ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = listener.Close() }()
		s.addresses[i] = listener.Addr().String()
		if s.ports[i], err = listener.(*net.TCPListener).File(); err != nil {
			return nil, err
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.control = listener.Addr().String()
	controller := &http.Server{Handler: s.controls()}
	go func() { _ = controller.Serve(listener) }()
	err = s.start()
	s.running = append(s.running, controller)
	return s, err
}

// start starts the instances.
func (s *site) start() error {
	for i, port := range s.ports {
		listener, err := net.FileListener(port)
		if err != nil {
			return err
		}
		instance := newServer(s.store, s.addresses[i])
		if s.defect.spoil != nil {
			s.defect.spoil(instance)
		}
		server := &http.Server{Handler: instance, Protocols: new(http.Protocols)}
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetUnencryptedHTTP2(true)
		s.running = append([]*http.Server{server}, s.running...)
		go func() { _ = server.Serve(listener) }()
	}
	return nil
}

// restart kills the instances and starts them again. Requests that run lose their connection, and the store refuses what
// they do from then on.
func (s *site) restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.store.restart(); err != nil {
		return err
	}
	for _, server := range s.running[:2] {
		_ = server.Close()
	}
	s.running = s.running[2:]
	return s.start()
}

func (s *site) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, server := range s.running {
		_ = server.Close()
	}
	for _, file := range append(s.ports[:], s.store.file) {
		_ = file.Close()
	}
	_ = os.RemoveAll(s.folder)
}

// controls serves what oncecheck's options need: the number of payments, a restart, and the end and the return of the store.
func (s *site) controls() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /effects", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, len(s.store.of(""))) })
	mux.HandleFunc("POST /restart", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.restart(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("POST /store/down", func(http.ResponseWriter, *http.Request) { s.store.setDown(true) })
	mux.HandleFunc("POST /store/up", func(http.ResponseWriter, *http.Request) { s.store.setDown(false) })
	return mux
}

// command is one for sh that has the controller do what the path says.
func (s *site) command(path string) string {
	return checktest.Command(http.MethodPost, "http://"+s.control+path)
}

// questions are the arguments with which oncecheck asks everything.
func (s *site) questions() []string {
	url := func(i int, path string) string { return "http://" + s.addresses[i] + path }
	questions := []string{
		"-H", "Authorization: Bearer ann", "-H2", "Authorization: Bearer bob", "-d", `{"amount":{{n}}}`,
		"-also", url(1, "/payments"), "-other-url", url(0, "/refunds"), "-effects", "http://" + s.control + "/effects",
		"-slow", "slow=2s", "-slow", "late=2s", "-fail", "fail=after", "-fail", "fail=before", "-fail", "fail=panic", "-at-most-once",
		"-sample", "as=binary", "-sample", "as=large", "-sample", "as=empty", "-sample", "as=other", "-sample", "as=trailer",
		"-restart", s.command("/restart"), "-store-down", s.command("/store/down"), "-store-up", s.command("/store/up"),
		"-timeout", "20s", "-patience", "60s",
	}
	return append(append(questions, s.defect.flags...), url(0, "/payments"))
}
