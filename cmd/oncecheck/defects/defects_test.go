package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/checktest"
)

// neverAsked are the checks that a server here leaves out by what it is, and not for want of a flag.
var neverAsked = map[string][]string{
	// There is no conflict.
	"none-wait": {"inflight/retry-after", "inflight/retry-after-sane"},
}

// brief are the defects that short test runs ask, too.
var brief = strings.Fields(`key-anything key-36 looks-then-locks lock-per-process disconnect-frees replay-empty-500 replay-200
	body-ignored mismatch-leaks user-ignored leaks-later restart-forgets stored-before-effect failed-frees down-runs
	acp-key-not-echoed ucp-json`)

// TestDefects has each server asked everything. Exactly the checks that it names do not hold, and the curl lines of each
// show that again.
func TestDefects(t *testing.T) {
	t.Parallel()
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			if !slices.Contains(brief, d.name) {
				checktest.Long(t)
			}
			s := startDefect(t, d)
			verdicts := ask(t, s.questions()...)
			want := strings.Fields(d.fails)
			if got := ids(verdicts, "failed"); !slices.Equal(got, want) {
				t.Errorf("failed: got %q\nwant %q", got, want)
				for _, v := range verdicts {
					if slices.Contains(want, v.ID) != (v.Verdict == "failed") {
						t.Errorf("%s %s: %s\n%s", v.ID, v.Verdict, v.Sentence, strings.Join(v.Curl, "\n"))
					}
				}
			}
			if !slices.Contains(notAgain, d.name) {
				t.Run("curl", func(t *testing.T) { wantShownAgain(t, s, verdicts) })
			}
		})
	}
}

// TestRight asks the right servers again and again: nothing may fail by chance, and nothing may be left out. Slow requests
// take long enough for a restart to begin on a machine that all the tests beside this one keep busy. Before a release, ask 20
// times, with -count=20.
func TestRight(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"none", "none-wait", "acp", "ucp", "stripe"} {
		d, ok := find(name)
		if !ok {
			t.Fatal(name)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			questions := startDefect(t, d).questions()
			for i, q := range questions {
				if q == "slow=2s" || q == "late=2s" {
					questions[i] = strings.Replace(q, "2s", "5s", 1)
				}
			}
			for _, v := range ask(t, questions...) {
				switch {
				case v.Verdict == "failed":
					t.Errorf("%s failed: %s\n%s", v.ID, v.Sentence, strings.Join(v.Curl, "\n"))
				case v.Verdict != "held" && !slices.Contains(neverAsked[name], v.ID):
					t.Errorf("%s %s: %s", v.ID, v.Verdict, v.Sentence)
				}
			}
		})
	}
}

// TestEachCheckFails finds, for each check, a defect that it does not miss.
func TestEachCheckFails(t *testing.T) {
	t.Parallel()
	var fails []string
	for _, d := range defects {
		fails = append(fails, strings.Fields(d.fails)...)
	}
	out, err := exec.Command(oncecheck, "-list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if id, _, _ := strings.Cut(line, " "); strings.Contains(id, "/") && !slices.Contains(fails, id) {
			t.Errorf("no defect fails %s", id)
		}
	}
}

// startDefect starts a site with the defect.
func startDefect(t *testing.T, d defect) *site {
	t.Helper()
	s := startSite(d)
	t.Cleanup(s.close)
	return s
}
