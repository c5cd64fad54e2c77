package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/checktest"
)

// notAgain are the defects whose servers would have to be started again first.
var notAgain = []string{"down-for-ever"}

// wantShownAgain runs the curl lines of each failure, in a race up to ten times: on a busy machine curl may send one
// after the other. They show it again.
func wantShownAgain(t *testing.T, s *site, verdicts []verdict) {
	t.Helper()
	checktest.MustHave(t, "curl")
	for _, v := range verdicts {
		// No few requests show that one.
		if v.Verdict != "failed" || v.ID == "load/shuffled" {
			continue
		}
		difference := "not run"
		for i := 0; i < 10 && difference != ""; i++ {
			difference = runAgain(t, s, v)
		}
		if difference != "" {
			t.Errorf("%s: %s: %s\n%s", v.ID, v.Sentence, difference, strings.Join(v.Curl, "\n"))
		}
	}
}

// runAgain runs the curl lines. It returns what is different, or nothing: they get the statuses of their comments, and have
// more than one effect if there was more than one.
func runAgain(t *testing.T, s *site, v verdict) string {
	before := len(s.store.of(""))
	sh := exec.CommandContext(t.Context(), "sh", "-c", strings.Join(v.Curl, "\n"))
	sh.Env = append(os.Environ(), "AUTHORIZATION=Bearer ann", "AUTHORIZATION_2=Bearer bob",
		"RESTART="+s.command("/restart"), "STORE_DOWN="+s.command("/down"), "STORE_UP="+s.command("/up"))
	out, _ := sh.Output() // a client that leaves ends with an error
	want, got := commented(v.Curl), answered(out)
	// What was answered in between is not in the comment.
	if strings.Contains(strings.Join(v.Curl, "\n"), "for wait in") {
		got = slices.DeleteFunc(got, func(status string) bool { return !slices.Contains(want, status) })
	}
	if severalEffects.MatchString(v.Sentence) {
		if n := len(s.store.of("")) - before; n < 2 {
			return fmt.Sprintf("the curl lines had %d effects", n)
		}
	} else if !slices.Equal(got, want) {
		return fmt.Sprintf("the curl lines got %s, want %s", got, want)
	}
	return ""
}

var (
	severalEffects = regexp.MustCompile(`^[0-9]+ effects`)
	inComment      = regexp.MustCompile(`(?:^|: )(?:[0-9]+ times )?([2-5][0-9][0-9]) [A-Z]`)
	inOutput       = regexp.MustCompile(`HTTP/[0-9.]+ ([2-5][0-9][0-9])\b`)
)

// commented returns the statuses in the lines' comments, each once.
func commented(lines []string) (statuses []string) {
	for _, line := range lines {
		_, comment, _ := strings.Cut(line, "  # ")
		for _, answer := range strings.Split(comment, " | ") {
			if found := inComment.FindStringSubmatch(answer); found != nil {
				statuses = append(statuses, found[1])
			}
		}
	}
	slices.Sort(statuses)
	return slices.Compact(statuses)
}

// answered returns the statuses that curl has printed, each once.
func answered(out []byte) (statuses []string) {
	for _, found := range inOutput.FindAllSubmatch(out, -1) {
		statuses = append(statuses, string(found[1]))
	}
	slices.Sort(statuses)
	return slices.Compact(statuses)
}
