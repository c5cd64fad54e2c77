package operate

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/middleware"
)

// fault: the service's database was down, and each request has stored its 503. Expected: two commands find and free these
// keys, and nothing else: neither another response, nor a run without an outcome, nor what has changed since.
func TestOutage(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		s.works, s.status = true, http.StatusServiceUnavailable
		keys := []string{s.key("down1"), s.key("down2"), s.key("changed")}
		for _, name := range []string{"down1", "down2", "changed"} {
			s.post(name)
		}
		s.status = http.StatusCreated
		s.post("booked")
		unknown := s.strand("unknown")

		scan := []string{"scan", "-namespace", "shop", "-rate", "100000", "-status"}
		r := s.run(append(scan, "500-599")...)
		r.want(t, exitDone, "found 3 responses in Redis; a journal may have others\n")
		for _, key := range keys {
			r.want(t, exitDone, "settled    "+key+"  "+s.token(key)+"  status 503, completed ")
		}
		if n := strings.Count(r.stdout, "\n"); n != 3 {
			t.Errorf("%d lines:\n%s", n, r.stdout)
		}
		s.run(append(scan, "504-599")...).want(t, exitDone, "found 0 responses")
		s.run(append(scan, "200-502")...).want(t, exitDone, "found 1 responses", s.key("booked"))

		list := s.run(append(scan, "503", "-json")...).stdout
		forget := func(list string) result {
			env := Environment{Stdin: strings.NewReader(list)}
			return onceguardWith(t, env, "forget", "-redis", s.url, "-namespace", "shop", "-reason", "ticket 4714", "-list", "-")
		}
		for _, wrong := range []string{list + "settled", list + `{"key":"` + unknown + `"}`, list + `{"token":"t"}`, list + `{"key":"k","token":"t"}`} {
			forget(wrong).want(t, exitUsage)
			s.run(append(scan, "503")...).want(t, exitDone, "found 3 responses")
		}
		s.run("forget", "-token", s.token(keys[2]), "-reason", "r", keys[2]).want(t, exitDone)
		s.post("changed") // which is booked now
		list += s.run("scan", "-namespace", "shop", "-json", "-rate", "100000").stdout
		r = forget(list)
		r.want(t, exitRefused, "forgotten: it was settled; "+keys[0], "forgotten: it was settled; "+keys[1], "forgotten: 2 of 4\n",
			"-list removes only what is stored", `reason="ticket 4714" key=`+keys[1], "level=WARN msg=forget user=ops")
		runs := s.runs
		for name, again := range map[string]int{"down1": 1, "down2": 1, "changed": 0, "booked": 0, "unknown": 0} {
			if s.post(name); s.runs != runs+again {
				t.Errorf("%s: %d runs, want %d", name, s.runs-runs, again)
			}
			runs = s.runs
		}
		file := filepath.Join(t.TempDir(), "list")
		if err := os.WriteFile(file, []byte(`{"key":"`+s.key("new")+`","token":"t"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		s.run("forget", "-namespace", "shop", "-reason", "r", "-list", file).want(t, exitDone, "forgotten: 0 of 1\n")
	})
}

// fault: the command does not have the service's encryption keys. Expected: the scan says that it has not seen all.
func TestOutageUnreadable(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		s.works = true
		s.post("k1")
		s.run("scan", "-namespace", "shop", "-status", "200-599").want(t, exitDone, "found 0 responses, and 1 that cannot be read (-keys-file)")
	}, middleware.WithEncryption(make([]byte, 32)))
}
