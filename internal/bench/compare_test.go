package main

import (
	"errors"
	"flag"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseCompare(t *testing.T) {
	cfg, err := parseCompare(session{args: []string{"-rounds", "3", "-time", "20ms"}, progress: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.rounds != 3 || cfg.time != 20*time.Millisecond || !slices.Equal(cfg.callers, []int{1, 16, 64, 256}) {
		t.Errorf("got %+v", cfg)
	}
	for _, args := range [][]string{{"-rounds", "0"}, {"-time", "0s"}} {
		if _, err := parseCompare(session{args: args, progress: io.Discard}); err == nil || err == flag.ErrHelp {
			t.Errorf("%q: error %v, want another one", args, err)
		}
	}
}

// No command begins with arguments that it does not know.
func TestArguments(t *testing.T) {
	for name, command := range commands {
		if err := command(t.Context(), session{args: []string{"x"}, progress: io.Discard}); err == nil || err == flag.ErrHelp {
			t.Errorf("%q x: error %v, want another one", name, err)
		}
		if err := command(t.Context(), session{args: []string{"-help"}, progress: io.Discard}); err != flag.ErrHelp {
			t.Errorf("%q -help: error %v, want ErrHelp", name, err)
		}
	}
}

func TestCompare(t *testing.T) {
	redisFor(t)
	var out, progress strings.Builder
	cfg := compareConfig{rounds: 2, time: 5 * time.Millisecond, callers: []int{1, 16}}
	if err := compare(t.Context(), session{out: &out, progress: &progress}, cfg); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	for _, want := range []string{
		"go1.", "Redis server v=", "fiber/v3 v3.", "- 1 caller: not pinned",
		"### Replay, thousands a second", "| replay / fiber | ",
		"## Over HTTP", "| replay / net/http alone | ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
}

// What fails is named, and has no score.
func TestFailuresHaveNoScore(t *testing.T) {
	c := conditionsFor(redisFor(t), 1)
	b := board{session: session{progress: t.Output()}, suite: comparisonSuite(), conditions: c, column: column{title: "1 caller", callers: 1}}
	round := scores{}
	for name, open := range map[string]opener{"sound": openBare(oneByOne), "broken": openMute} {
		of := contender{group: first, name: name, subject: subjectOf(t, firsts(open), c)}
		b.measure(t.Context(), of, time.Millisecond, round)
	}
	if _, ok := round["first/sound"]; !ok || len(round) != 1 {
		t.Errorf("scores %v, want those of first/sound alone", round)
	}
	if len(b.failures) != 1 || !strings.HasPrefix(b.failures[0].Error(), "first/broken, 1 caller: ") {
		t.Errorf("failures %q, want the one of first/broken", b.failures)
	}
}

func TestShuffled(t *testing.T) {
	suite := comparisonSuite()
	orders := map[string]bool{}
	for range 20 {
		order := shuffled(suite.contenders)
		ids := map[string]bool{}
		text := ""
		for _, c := range order {
			ids[c.id()] = true
			text += c.id() + " "
		}
		orders[text] = true
		if len(ids) != len(suite.contenders) {
			t.Fatalf("not all contenders: %s", text)
		}
		met := slices.CompactFunc(order, func(a, b contender) bool { return a.group == b.group })
		if len(met) != len(suite.groups) {
			t.Fatalf("groups are torn apart: %s", text)
		}
	}
	if len(orders) < 19 {
		t.Errorf("20 rounds had %d orders", len(orders))
	}
}

func TestCores(t *testing.T) {
	for _, test := range []struct {
		callers int
		cores   cores
		want    string
	}{
		{1, cores{"0", "1"}, "bench on core 0, Redis on core 0"},
		{16, cores{"2", "6"}, "bench on core 2, Redis on core 6"},
		{16, cores{"3", "3"}, "bench on core 3, Redis on core 3"},
		{16, cores{}, "not pinned"},
	} {
		if got := test.cores.describe(test.callers); got != test.want {
			t.Errorf("%d callers on cores %v: %s, want %s", test.callers, test.cores, got, test.want)
		}
	}
}

func TestTables(t *testing.T) {
	var out strings.Builder
	err := comparisonSuite().writeTables(&out, []column{
		{title: "1 caller", callers: 1, rounds: []scores{
			{
				"first/handler": {allocs: 3, bytes: 1024}, "first/bare": {rate: 20_000, allocs: 40},
				"first/onceguard": {rate: 18_000, allocs: 23, bytes: 3072},
			},
			{"first/bare": {rate: 10_000, allocs: 40}, "first/onceguard": {rate: 9_100}},
		}},
		{title: "64 callers", callers: 64, rounds: []scores{{"first/bare": {rate: 50_000}}}, failures: []error{errors.New("a reason")}},
	})
	if err == nil || err.Error() != "a reason" {
		t.Errorf("error %v, want a reason", err)
	}
	for _, want := range []string{
		"### Ratios of throughput\n\n|  | 1 caller | 64 callers |\n|---|---|---|\n" +
			"| first request / the bare two commands | 0.90 (0.90–0.91) |  |\n\n",
		"### First request, thousands a second\n\n",
		"| bare: `SET NX GET PX`, `EVALSHA` | 10.0 (10.0–20.0) | 50.0 (50.0–50.0) |\n",
		"| First request: onceguard | 20.0, 2.0 KiB |  |\n",
		"\n**Failed:** a reason\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the tables lack\n%s", want)
		}
	}
	if got := out.String(); strings.Contains(got, "### Replay") || strings.Contains(got, "NaN") {
		t.Error("the tables have what was not measured")
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// A comparison with a name that no contender has would have no row, and the row would not be missed.
func TestComparisonsNameContenders(t *testing.T) {
	for name, suite := range map[string]suite{"compare": comparisonSuite(), "journal": journalSuite()} {
		ids := map[string]bool{}
		for _, c := range suite.contenders {
			if ids[c.id()] {
				t.Errorf("%s: two are called %s", name, c.id())
			}
			ids[c.id()] = true
		}
		for _, c := range suite.contenders {
			if c.baseline != "" && !ids[c.group+"/"+c.baseline] {
				t.Errorf("%s: the baseline of %s does not exist: %s", name, c.id(), c.baseline)
			}
		}
		for _, c := range suite.comparisons {
			for _, id := range strings.Fields(c.ids) {
				if !ids[id] {
					t.Errorf("%s: %q compares %s, which does not exist", name, c.label, id)
				}
			}
		}
	}
}
