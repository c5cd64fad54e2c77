package operate

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware"
)

func TestResolve(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		key := s.strand("k1")
		token := s.token(key)
		file := filepath.Join(t.TempDir(), "body")
		if err := os.WriteFile(file, []byte(`{"id":7}`), 0o600); err != nil {
			t.Fatal(err)
		}
		change := []string{"resolve", "-token", token, "-reason", "ledger: booked"}
		with := func(args ...string) result {
			return s.run(append(change[:len(change):len(change)], append(args, key)...)...)
		}

		with("-status", "102").want(t, exitUsage, "102 is no final status")
		with("-status", "200", "-body-file", file, "-max-response", "3").want(t, exitUsage, "longer than 3 bytes")
		with("-status", "200", "-header", "Set-Cookie: a=b").want(t, exitUsage, "WithCookies")
		s.run("inspect", key).want(t, exitDone, "abandoned")

		r := with("-status", "201", "-header", "Content-Type: application/json", "-header", "Location:/payments/7",
			"-header", "Link: <a>", "-header", "link: <b>", "-body-file", file, "-retention", "48h", "-json")
		r.want(t, exitDone, `"result":"resolved","state_before":"abandoned","state":"settled"}`, "msg=resolve", "user=ops",
			`reason="ledger: booked"`, "before=abandoned", "result=resolved")
		if strings.Contains(r.stderr, `{"id":7}`) {
			t.Errorf("the log has the body: %s", r.stderr)
		}
		w := s.post("k1")
		if w.Code != 201 || w.Body.String() != `{"id":7}` || w.Header().Get("Idempotent-Replayed") != "true" ||
			w.Header().Get("Location") != "/payments/7" || len(w.Header()["Link"]) != 2 || s.runs != 1 {
			t.Errorf("%d %s %v, %d runs", w.Code, w.Body, w.Header(), s.runs)
		}
		s.run("inspect", key).want(t, exitDone, "settled", "ends     in 4")
		with("-status", "201").want(t, exitRefused, "it is settled", "level=WARN")
		with("-nothing-happened").want(t, exitRefused, "it is settled")
		change[2] = s.token(key) // which the key holds: the error does not say that it does not
		for _, said := range []string{"-status=201", "-nothing-happened"} {
			r := with(said)
			r.want(t, exitRefused, "the run has its outcome, and Resolve replaces none")
			if strings.Contains(r.stderr, "does not hold") {
				t.Error(r.stderr)
			}
		}
	})
}

func TestResolveAsNothingHappened(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		key := s.strand("k1")
		token := s.token(key)
		s.run("resolve", "-token", token, "-reason", "not in the ledger", "-nothing-happened", key).
			want(t, exitDone, "freed: it was abandoned; the next try runs\n")
		s.run("resolve", "-token", token, "-reason", "r", "-nothing-happened", key).want(t, exitFree)
		if w := s.post("k1"); w.Code != http.StatusCreated || s.runs != 2 {
			t.Errorf("%d, %d runs", w.Code, s.runs)
		}
	})
}

func TestResolveWithKeys(t *testing.T) {
	old, now := bytes.Repeat([]byte("o"), 32), bytes.Repeat([]byte{0xfb}, 32)
	each(t, func(t *testing.T, s *shop) {
		key := s.strand("k1")
		file := filepath.Join(t.TempDir(), "keys")
		write := func(lines ...string) {
			if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		change := []string{"resolve", "-token", s.token(key), "-reason", "r", "-status", "201", key}
		s.run(change...).want(t, exitRefused, "encrypted")
		write(hex.EncodeToString(old))
		s.run(append(change, "-keys-file", file)...).want(t, exitRefused, "no key of WithEncryption decrypts it")
		write("# of 2026", base64.URLEncoding.EncodeToString(now), "", hex.EncodeToString(old))
		s.run(append(change, "-keys-file", file)...).want(t, exitDone, "resolved")
		if w := s.post("k1"); w.Code != http.StatusCreated || w.Header().Get("Idempotent-Replayed") != "true" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	}, middleware.WithEncryption(now))
}

// A run with a journal is left to the journal.
func TestResolveRefusesJournals(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		key := s.strand("k1")
		token := s.token(key)
		for _, said := range []string{"-nothing-happened", "-status=200"} {
			s.run("resolve", "-token", token, "-reason", "r", said, key).want(t, exitRefused, "journal", withDrivers)
		}
		s.run("inspect", key).want(t, exitDone, "abandoned")
	}, middleware.WithJournal(forgetful{}))
}

// forgetful is a transactional journal in which nothing was ever committed.
type forgetful struct{}

func (forgetful) Namespace() string { return "shop" }

func (forgetful) IsIntent() bool { return false }

func (forgetful) Begin(context.Context, journal.Run) (e journal.Entry, err error) {
	return e, err
}

func (forgetful) End(context.Context, journal.Run, []byte, time.Duration) (e journal.Entry, err error) {
	return e, err
}

func (forgetful) Look(context.Context, string) (e journal.Entry, err error) { return e, err }

func TestParseKeys(t *testing.T) {
	t.Parallel()
	key := bytes.Repeat([]byte{0xfb}, 32)
	for name, line := range map[string]string{
		"hex": hex.EncodeToString(key), "HEX": strings.ToUpper(hex.EncodeToString(key)),
		"base64": base64.StdEncoding.EncodeToString(key), "raw": base64.RawStdEncoding.EncodeToString(key),
		"url": base64.URLEncoding.EncodeToString(key), "raw url": base64.RawURLEncoding.EncodeToString(key),
		"blanks": "  " + hex.EncodeToString(key) + "\r",
	} {
		if keys, err := parseKeys("#\n\n" + line + "\n"); err != nil || len(keys) != 1 || !bytes.Equal(keys[0], key) {
			t.Errorf("%s: %x, %v", name, keys, err)
		}
	}
	for _, text := range []string{"", "# none", "secret", hex.EncodeToString(key[1:]), base64.StdEncoding.EncodeToString(key[1:])} {
		keys, err := parseKeys(text)
		if err == nil || len(keys) > 0 || text != "" && strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("%q: %x, %v", text, keys, err)
		}
	}
}

// FuzzParseKeys parses arbitrary texts. Each key has 32 bytes, and parses again from its hexadecimal digits.
func FuzzParseKeys(f *testing.F) {
	f.Add("# comment\n" + strings.Repeat("fb", 32) + "\n" + strings.Repeat("-", 43) + "=")
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := parseKeys(text)
		if (err == nil) != (len(keys) > 0) {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		for _, key := range keys {
			again, err := parseKeys(hex.EncodeToString(key))
			if len(key) != keySize || err != nil || len(again) != 1 || !bytes.Equal(again[0], key) {
				t.Errorf("%x, %x, %v", key, again, err)
			}
		}
	})
}
