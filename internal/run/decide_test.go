package run_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/run"
)

var (
	hows = map[run.How]string{
		run.Interrupted: "interrupted", run.TimedOut: "timed out", run.Broken: "broken", run.LeftOpen: "left open",
		run.Partial: "partial", run.Bypassed: "bypassed", run.Refused: "refused", run.Forbidden: "forbidden",
		run.NothingHappened: "nothing happened", run.Whole: "whole",
	}
	wishes = map[run.Wish]string{
		run.WishNothing: "nothing", run.WishKeep: "keep", run.WishDiscard: "discard", run.WishUnknown: "unknown",
	}
	actions = map[run.Action]string{
		run.Leave: "leave", run.Free: "free", run.Store: "store", run.Tombstone: "tombstone",
		run.UnknownTombstone: "unknown tombstone",
	}
)

// decisionTable returns the rows of the table in the comment of Decide: how, wish, sent, strict, keeps, action, outcome.
func decisionTable(t *testing.T) (rows [][]string) {
	t.Helper()
	source, err := os.ReadFile("decide.go")
	if err != nil {
		t.Fatal(err)
	}
	columns := regexp.MustCompile(`\s{2,}`)
	for line := range strings.Lines(string(source)) {
		text, isCode := strings.CutPrefix(line, "//\t")
		if !isCode {
			continue
		}
		row := columns.Split(strings.TrimSpace(text), -1)
		if len(row) != 7 {
			t.Fatalf("%d columns: %q", len(row), row)
		}
		rows = append(rows, row)
	}
	if len(rows) < 2 || rows[0][0] != "how" {
		t.Fatalf("no table: %q", rows)
	}
	return rows[1:]
}

// fits reports whether a row of the table applies to the facts.
func fits(row []string, f run.Facts) bool {
	yesNo := map[bool]string{true: "yes", false: "no"}
	isFailed := f.How == run.LeftOpen || f.How == run.TimedOut || f.How == run.Broken
	if row[0] == "failed" && !isFailed || row[0] != "failed" && row[0] != "-" && row[0] != hows[f.How] {
		return false
	}
	for i, is := range []string{wishes[f.Wish], yesNo[f.Sent], yesNo[f.Strict], yesNo[f.RuleStores]} {
		if cell := row[i+1]; cell != "-" && cell != is {
			return false
		}
	}
	return true
}

// Decide is its table, for every combination of facts. Each row decides something.
func TestDecide(t *testing.T) {
	t.Parallel()
	rows := decisionTable(t)
	used := make([]bool, len(rows))
	for how := range hows {
		for wish := range wishes {
			for bits := range 8 {
				f := run.Facts{How: how, Wish: wish, Sent: bits&1 > 0, Strict: bits&2 > 0, RuleStores: bits&4 > 0}
				n := 0
				for n < len(rows) && !fits(rows[n], f) {
					n++
				}
				if n == len(rows) {
					t.Errorf("no row fits %+v", f)
					continue
				}
				used[n] = true
				action, unknown := run.Decide(f)
				if want := rows[n]; actions[action] != want[5] || unknown != (want[6] == "unknown") {
					t.Errorf("%+v: %s, unknown %v; want %s, %s", f, actions[action], unknown, want[5], want[6])
				}
			}
		}
	}
	for n, row := range rows {
		if !used[n] {
			t.Errorf("nothing reaches the row %q", row)
		}
	}
}
