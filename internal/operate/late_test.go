package operate

import (
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// fault: a command gets no reply, and Redis executes what it has sent only after its time, when somebody may have decided
// otherwise. Expected: the exit code says that the change may have been made, and after -timeout nothing changes any more.
func TestChangeArrivesLate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		line  string
		works bool // the key has a response, and otherwise an abandoned claim
	}{
		"forget a claim":    {line: "forget"},
		"forget a response": {line: "forget", works: true},
		"free":              {line: "resolve -nothing-happened"},
		"resolve":           {line: "resolve -status 201"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr())
			s := open(t, server.Client(t), "redis://"+proxy.Addr(), func(d time.Duration) { server.Elapse(t, d) })
			s.works = test.works
			inspect := func(key string) lock.Info {
				info, err := s.locker.Inspect(t.Context(), s.key(key))
				if err != nil {
					t.Fatal(err)
				}
				return info
			}
			change := func(key, timeout string) (result, lock.Info) {
				s.post(key)
				s.elapse(3 * time.Minute)
				info := inspect(key)
				return s.run(test.line + " -timeout " + timeout + " -token " + info.Token + " -reason r " + info.Key), info
			}
			first, _ := change("first", "30s") // the server learns the scripts
			first.want(exitDone)

			held := proxy.HoldRequest(func(c redistest.Command) bool {
				return len(c.Args) > 4 && strings.HasPrefix(string(c.Args[3]), "OG")
			})
			got, before := change("late", "500ms")
			got.want(exitFailed)
			if held.Hits() == 0 {
				t.Fatal("nothing was held")
			}
			client := server.Client(t)
			now := func() time.Time { return client.Time(t.Context()).Val() }
			for until := now().Add(510 * time.Millisecond); !now().After(until); {
				time.Sleep(5 * time.Millisecond)
			}
			calls := func() string { // how many scripts the server has run
				_, stats, _ := strings.Cut(client.Info(t.Context(), "commandstats").Val(), "cmdstat_evalsha:")
				stats, _, _ = strings.Cut(stats, ",")
				return stats
			}
			was := calls()
			held.Lift()
			for deadline := time.Now().Add(20 * time.Second); calls() == was; {
				if time.Now().After(deadline) {
					t.Fatal("what was held is not executed")
				}
				time.Sleep(5 * time.Millisecond)
			}
			if after := inspect("late"); after.Token != before.Token || after.State != before.State {
				t.Errorf("the key is %v, and was %v", after.State, before.State)
			}
			if s.post("late"); s.runs != 2 {
				t.Errorf("%d runs, want one for each key", s.runs)
			}
		})
	}
}
