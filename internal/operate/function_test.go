package operate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceguard/onceguard/once"
)

// The run of a function is seen as that of a request is, and freed. A response cannot be its result.
func TestFunctions(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		guard := once.New(s.locker, once.WithAtMostOnce())
		key := ""
		charge := func(err error) error {
			_, _, err = once.Do(t.Context(), guard, once.Key{Operation: "charge", Scope: "ann", ID: "1"},
				func(ctx context.Context) (string, error) {
					key = once.FromContext(ctx).Key()
					return "paid", err
				})
			return err
		}
		if err := charge(once.Unknown(errors.New("no reply"))); err == nil {
			t.Error("no error")
		}
		s.elapse(time.Minute + time.Second)
		s.run("inspect", key).want(t, exitDone, "abandoned")
		token := s.token(key)
		s.run("resolve", "-token", token, "-reason", "r", "-status", "201", key).want(t, exitRefused, "another kind of run")
		s.run("resolve", "-token", token, "-reason", "not in the ledger", "-nothing-happened", key).want(t, exitDone, "freed")
		if err := charge(nil); err != nil {
			t.Error(err)
		}
		s.run("inspect", key).want(t, exitDone, "settled", "the result of a function; completed ")
		s.run("inspect", "-json", key).want(t, exitDone, `"function":true`)
	})
}
