package operate

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/journal"
)

func TestScan(t *testing.T) {
	s := openMini(t)
	abandoned := s.strand("abandoned")
	s.post("settled")
	s.works = false
	s.post("held")
	for line, wants := range map[string][]string{
		"scan -namespace shop -rate 1000000":      {"abandoned  " + abandoned + "  ", "held       " + s.key("held") + "  ", "found 1 held and 1 abandoned keys"},
		"scan -namespace shop -json -rate 100000": {`"state":"held","token":"`, `"state":"abandoned","token":"`},
	} {
		if r := s.run(line).want(exitDone, wants...); strings.Count(r.stdout, "\n") != 2 {
			t.Errorf("want 2 lines:\n%s", r.stdout)
		}
	}
	s.run("scan -namespace other").want(exitDone, "found 0 held and 0 abandoned keys")
}

// fault: the service's database was down, and each request has stored its 503. Expected: two commands find and free these
// keys, and nothing else: neither another response, nor a run without an outcome, nor what has changed since.
func TestOutage(t *testing.T) {
	s := openMini(t)
	s.works, s.status = true, http.StatusServiceUnavailable
	names := []string{"down1", "down2", "changed"}
	for _, name := range names {
		s.post(name)
	}
	s.status = http.StatusCreated
	s.post("booked")
	unknown := s.strand("unknown")

	const scan = "scan -namespace shop -rate 100000 "
	r := s.run(scan+"-status 500-599").want(exitDone, "found 3 responses in Redis; a journal may have others\n")
	for _, name := range names {
		r.want(exitDone, "settled    "+s.key(name)+"  "+s.token(s.key(name))+"  status 503, completed ")
	}
	r.hides(s.key("booked"), unknown)
	s.run(scan+"-status 504-599").want(exitDone, "found 0 responses")
	s.run(scan+"-status 200-502").want(exitDone, "found 1 responses", s.key("booked"))

	list := s.run(scan + "-status 503 -json").stdout
	forget := func(list string) result {
		env := Environment{Stdin: strings.NewReader(list)}
		return onceguard(t, env, "forget -namespace shop -list - -redis "+s.url, "-reason", "ticket 4714")
	}
	for _, wrong := range []string{"settled", `{"key":"` + unknown + `"}`, `{"token":"t"}`, `{"key":"k","token":"t"}`} {
		forget(list + wrong).want(exitUsage)
		s.run(scan+"-status 503").want(exitDone, "found 3 responses")
	}
	s.change("forget", s.key("changed")).want(exitDone)
	s.post("changed") // which is booked now
	forget(list+s.run(scan+"-json").stdout).want(exitRefused,
		"forgotten: it was settled; "+s.key("down1"), "forgotten: it was settled; "+s.key("down2"), "forgotten: 2 of 4\n",
		"-list removes only what is stored", `reason="ticket 4714" key=`+s.key("down2"), "level=WARN msg=forget user=ops")
	runs := s.runs
	for _, name := range []string{"down1", "down2", "changed", "booked", "unknown"} {
		s.post(name)
	}
	if s.runs != runs+2 {
		t.Errorf("%d runs, want the two that were down", s.runs-runs)
	}
	s.run("forget -namespace shop -reason r -list "+writeFile(t, `{"key":"`+s.key("new")+`","token":"t"}`)).want(exitDone, "forgotten: 0 of 1\n")
}

// rowsJournal is a journal with rows that have no outcome. Without one its database does not answer.
type rowsJournal struct {
	Journal
	rows []Row
}

func (rowsJournal) Namespace() string { return "shop" }
func (rowsJournal) IsIntent() bool    { return true }
func (rowsJournal) Close() error      { return nil }

func (j rowsJournal) Keys(ctx context.Context, _ bool) (keys []string, err error) {
	if j.rows == nil {
		<-ctx.Done()
	}
	for _, row := range j.rows {
		keys = append(keys, row.Key)
	}
	return keys, context.Cause(ctx)
}

func (j rowsJournal) Row(context.Context, string) (Row, error) { return j.rows[0], nil }

func (j rowsJournal) Begin(context.Context, journal.Run) (e journal.Entry, err error) { return e, err }

func (j rowsJournal) Look(context.Context, string) (journal.Entry, error) {
	return journal.Entry{State: journal.Unfinished, Token: "t"}, nil
}

func (j rowsJournal) env() Environment {
	return Environment{OpenJournal: func(context.Context, string, string) (Journal, error) { return j, nil }}
}

func TestScanOfASilentJournal(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"scan", "scan -status 503"} {
		onceguard(t, rowsJournal{}.env(), line+" -redis none -journal any -namespace shop -timeout 10ms").want(exitFailed, "deadline exceeded")
	}
}

// fault: Redis and the journal are asked for each row of a long list as fast as they answer. Expected: a scan is as slow as it
// was told to be.
func TestScanIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j rowsJournal
		for i := range 30 {
			j.rows = append(j.rows, Row{Key: fmt.Sprintf("shop:{0000}%064d", i), State: journal.Unfinished, Token: "t"})
		}
		start := time.Now()
		onceguard(t, j.env(), "scan -redis none -journal any -namespace shop -rate 10").want(exitDone, "found 0 held and 30 abandoned keys")
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("30 rows at 10 a second take %v", took)
		}
	})
}
