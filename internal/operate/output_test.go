package operate

import (
	"bytes"
	"errors"
	"io"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
)

// full is a device without room.
type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }

// fault: the output of a command is lost, as on /dev/full. Expected: the exit code is not that of success, and the other
// stream says why.
func TestLostOutput(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		key := s.strand("k1")
		token := s.token(key)
		for _, args := range [][]string{
			{"inspect", "-redis", s.url, key}, {"inspect", "-redis", s.url, "-json", key},
			{"scan", "-redis", s.url, "-namespace", "shop"}, {"help"}, {"inspect", "-help"},
			{"resolve", "-redis", s.url, "-token", token, "-reason", "r", "-nothing-happened", key},
		} {
			var stderr bytes.Buffer
			env := Environment{Stdin: strings.NewReader(""), Stdout: full{}, Stderr: &stderr, Getenv: func(string) string { return "" }}
			toStderr := len(args) == 2 // -help
			if toStderr {
				env.Stdout, env.Stderr = io.Discard, full{}
			}
			code := Run(t.Context(), args, env)
			if code != exitFailed || !toStderr && !strings.Contains(stderr.String(), errFull.Error()) {
				t.Errorf("%s: %d, %s", args, code, stderr.String())
			}
		}
	})
}

// fault: -keys-file is a device that never ends. Expected: it is refused after the greatest length of such a file.
func TestEndlessKeysFile(t *testing.T) {
	t.Parallel()
	const device = "/dev/zero"
	if _, err := os.Stat(device); err != nil {
		t.Skip("needs ", device)
	}
	onceguard(t, "inspect", "-redis", "redis://127.0.0.1:1", "-namespace", "shop", "-keys-file", device, "shop:{0000}"+strings.Repeat("0", 64)).
		want(t, exitUsage, "-keys-file: more than 1048576 bytes")
}

// fault: the URL has the numbers of a service, and with some of them go-redis panics, or sends nothing and returns no
// error. Expected: the command has its own.
func TestPoolOfTheURL(t *testing.T) {
	t.Parallel()
	mini := redistest.Mini(t)
	s := open(t, mini.Client(t), "", func(d time.Duration) { mini.Elapse(t, d) })
	key := s.strand("k1")
	for _, name := range ofService {
		for _, number := range []string{"-3", "-1", "0", "1000000000000"} {
			s.url = "redis://" + mini.Addr() + "?" + url.Values{name: {number}}.Encode()
			s.run("inspect", key).want(t, exitDone, "state    abandoned")
			s.run("inspect", "-timeout", "50ms", "-redis", "redis://127.0.0.1:1?master_name=main&"+name+"="+number, key).want(t, exitFailed)
			s.run("inspect", "-timeout", "50ms", "-redis", "redis://127.0.0.1:1?addr=127.0.0.1:2&"+name+"="+number, key).want(t, exitFailed)
		}
	}
}
