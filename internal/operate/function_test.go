package operate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/once"
)

// till is a function that the shop's Redis protects.
type till struct {
	*shop
	guard *once.Guard
	key   string // as it stands in Redis
	runs  int
}

func newTill(s *shop, opts ...once.Option) *till {
	return &till{shop: s, guard: once.New(s.locker, append(opts, once.WithAtMostOnce())...)}
}

// charge calls the function, which ends with err.
func (c *till) charge(err error) (paid string, replayed bool, _ error) {
	c.t.Helper()
	return once.Do(c.t.Context(), c.guard, once.Key{Operation: "charge", Scope: "ann", ID: "1"},
		func(ctx context.Context) (string, error) {
			c.runs++
			c.key = once.FromContext(ctx).Key()
			return "paid", err
		})
}

// strand leaves a call without an outcome, and returns its token.
func (c *till) strand() (token string) {
	c.t.Helper()
	if _, _, err := c.charge(once.Unknown(errors.New("no reply"))); err == nil {
		c.t.Fatal("no error")
	}
	c.elapse(time.Minute + time.Second)
	return c.token(c.key)
}

// fault: an operator gives a function's run a response. Expected: the error says that it is a function's, not that it is
// damaged. Its value or its error ends the run, and NothingHappened frees the key.
func TestFunctions(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		c := newTill(s)
		token := c.strand()
		s.run("inspect", c.key).want(t, exitDone, "abandoned: a function ended without an outcome; retries get once.ErrOutcomeUnknown", "run      of a function")
		s.run("inspect", "-json", c.key).want(t, exitDone, `"state":"abandoned","token":"`+token+`","run":"function"`)
		resolve := func(args ...string) result {
			return s.run(append([]string{"resolve", "-token", token, "-reason", "r", c.key}, args...)...)
		}
		resolve("-status", "201").want(t, exitUsage, "the run is a function's (package once), which leaves a value or an error")
		file := filepath.Join(t.TempDir(), "value")
		write := func(value string) {
			if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("paid by hand")
		resolve("-value", file).want(t, exitUsage, "-value: this is not JSON; if the service has once.WithCodec, add -raw")
		write(`"` + strings.Repeat("x", 1<<20) + `"`)
		resolve("-value", file, "-raw").want(t, exitUsage, "longer than 1 MiB")
		write(`"paid by hand"`)
		resolve("-value", file, "-failed", "declined").want(t, exitUsage, "give one of")
		s.run("inspect", c.key).want(t, exitDone, "abandoned")
		resolve("-value", file, "-retention", "48h").want(t, exitDone, "resolved: it was abandoned; every retry gets the value for 48h0m0s")
		if paid, replayed, err := c.charge(nil); paid != "paid by hand" || !replayed || err != nil || c.runs != 1 {
			t.Errorf("%q, %t, %v, %d runs", paid, replayed, err, c.runs)
		}
		s.run("inspect", c.key).want(t, exitDone, "settled: retries get the stored value or error", "the result of a function; completed ")
		s.run("inspect", "-json", c.key).want(t, exitDone, `"function":true`)
		token = s.token(c.key)
		resolve("-value", file).want(t, exitRefused, "the run has its outcome, and Resolve replaces none")
		s.run("forget", "-token", token, "-reason", "r", c.key).want(t, exitDone, "forgotten")

		token = c.strand()
		resolve("-failed", "the card was declined").want(t, exitDone, "every retry gets the error for 24h0m0s")
		var stored *once.StoredError
		if _, replayed, err := c.charge(nil); !replayed || !errors.As(err, &stored) || stored.Text != "the card was declined" || c.runs != 2 {
			t.Errorf("%t, %v, %d runs", replayed, err, c.runs)
		}
		s.run("forget", "-token", s.token(c.key), "-reason", "r", c.key).want(t, exitDone, "forgotten")

		token = c.strand()
		resolve("-nothing-happened").want(t, exitDone, "freed")
		if _, replayed, err := c.charge(nil); replayed || err != nil || c.runs != 4 {
			t.Errorf("%t, %v, %d runs", replayed, err, c.runs)
		}
	})
}

// A value of another codec than JSON, and the reverse: a request takes no value.
func TestValues(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		text := once.WithCodec(func(v any) ([]byte, error) { return []byte(v.(string)), nil }, func(b []byte, v any) error {
			*v.(*string) = string(b)
			return nil
		})
		c := newTill(s, text)
		token := c.strand()
		env := Environment{Stdin: strings.NewReader("paid by hand")}
		r := onceguardWith(t, env, "resolve", "-redis", s.url, "-token", token, "-reason", "r", "-value", "-", "-raw", c.key)
		r.want(t, exitDone, "every retry gets the value")
		if paid, replayed, err := c.charge(nil); paid != "paid by hand" || !replayed || err != nil {
			t.Errorf("%q, %t, %v", paid, replayed, err)
		}
		key := s.strand("k1")
		s.run("resolve", "-token", s.token(key), "-reason", "r", "-failed", "declined", key).
			want(t, exitUsage, "the run is an HTTP request's, which leaves a response")
		s.run("inspect", key).want(t, exitDone, "abandoned: a request ended", "run      of an HTTP request")
	}, middleware.WithAtMostOnce())
}
