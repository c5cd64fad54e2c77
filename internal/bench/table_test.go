package main

import (
	"strings"
	"testing"
)

func TestTables(t *testing.T) {
	tables := newTables(config{})
	tables.add(column{callers: 1, rounds: []scores{
		{
			"first/handler": {allocs: 3, bytes: 1024}, "first/bare": {rate: 20_000, allocs: 40},
			"first/onceguard": {rate: 18_000, allocs: 23, bytes: 3072},
		},
		{"first/bare": {rate: 10_000, allocs: 40}, "first/onceguard": {rate: 9_100}},
	}})
	tables.add(column{callers: 64, rounds: []scores{{"first/bare": {rate: 50_000}}}, failures: []string{"a reason"}})
	var out strings.Builder
	tables.write(&out)
	for _, want := range []string{
		"### Ratios of throughput\n\n| | 1 caller | 64 callers |\n|---|---|---|\n" +
			"| first request / the bare two commands | 0.91 (0.90–0.91) |  |\n\n",
		"### First request, thousands a second\n\n",
		"| bare: `SET NX GET PX`, `EVALSHA` | 15.0 (12.5–17.5) | 50.0 (50.0–50.0) |\n",
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

// A name in a comparison that nobody has would give no row, and nobody would miss it.
func TestComparisonsNameContenders(t *testing.T) {
	ids := map[string]bool{}
	for _, c := range contenders(false) {
		if ids[c.id()] {
			t.Errorf("two are called %s", c.id())
		}
		ids[c.id()] = true
	}
	for _, c := range contenders(false) {
		if c.baseline != "" && !ids[c.group+"/"+c.baseline] {
			t.Errorf("the baseline of %s does not exist: %s", c.id(), c.baseline)
		}
		if titles[c.group] == "" {
			t.Errorf("the group %s has no title", c.group)
		}
	}
	for _, c := range comparisons {
		for _, id := range append([]string{c.contender}, c.others...) {
			if !ids[id] {
				t.Errorf("%q compares %s, which does not exist", c.label, id)
			}
		}
	}
}
