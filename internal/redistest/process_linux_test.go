package redistest_test

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
)

// orphanEnv marks the test binary that TestServerDiesWithTheTestBinary kills.
const orphanEnv = "REDISTEST_ORPHAN"

func TestServerDiesWithTheTestBinary(t *testing.T) {
	if os.Getenv(orphanEnv) != "" {
		os.Stdout.WriteString("listening on " + redistest.Start(t).Addr() + "\n")
		select {}
	}
	t.Parallel()
	redistest.Start(t) // or skip
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), orphanEnv+"=1", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	addr := ""
	for lines := bufio.NewScanner(out); addr == "" && lines.Scan(); {
		_, addr, _ = strings.Cut(lines.Text(), "listening on ")
	}
	if addr == "" {
		t.Fatal("the other test binary did not start a server")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // "signal: killed"
	eventually(t, "the server ends", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
}

// A thread ends with a goroutine that is locked to it. The server that the goroutine started must survive.
func TestServerOutlivesTheThreadThatStartedIt(t *testing.T) {
	t.Parallel()
	type started struct {
		server *redistest.Server
		thread int
	}
	start := make(chan started, 1)
	begin := func() {
		defer close(start)
		runtime.LockOSThread()
		start <- started{redistest.Start(t), syscall.Gettid()}
	}
	go func() {
		runtime.LockOSThread()
		if syscall.Gettid() != os.Getpid() {
			begin()
			return
		}
		// The main thread never ends. While this goroutine holds it, begin runs on another thread.
		done := make(chan struct{})
		go func() {
			defer close(done)
			begin()
		}()
		<-done
		runtime.UnlockOSThread()
	}()
	s, ok := <-start
	if !ok {
		return // skipped
	}
	eventually(t, "the thread ends", func() bool {
		_, err := os.Stat(filepath.Join("/proc/self/task", strconv.Itoa(s.thread)))
		return os.IsNotExist(err)
	})
	if err := s.server.Client(t, redistest.OneTry).Ping(within(t)).Err(); err != nil {
		t.Error(err)
	}
}
