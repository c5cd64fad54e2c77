package main

import (
	"fmt"
	"io"
	"strings"
)

// titles are what the tables are called.
var titles = map[string]string{
	first:      "First request",
	replay:     "Replay",
	inFlight:   "Duplicate in flight",
	duplicates: "Eight at a time: the first one takes 2 ms, the others wait for its response",
	locks:      "Lock: acquire and release",
}

// comparison is a row of the table of ratios.
type comparison struct {
	label, contender string
	others           []string
}

var comparisons = []comparison{
	{"first request / the bare two commands", "first/onceguard", []string{"first/bare"}},
	{"replay / bare `GET`", "replay/onceguard", []string{"replay/bare-get"}},
	{"replay / bare `SET NX GET PX`", "replay/onceguard", []string{"replay/bare-claim"}},
	{"in flight / bare `SET NX GET PX`", "in-flight/onceguard", []string{"in-flight/bare-claim"}},
	{"the bare two commands, AutoPipeline / not", "first/bare-auto", []string{"first/bare"}},
	{"the bare two commands, AutoPipeline, full duplex / not", "first/bare-auto-duplex", []string{"first/bare"}},
	{"bare `GET`, AutoPipeline / not", "replay/bare-get-auto", []string{"replay/bare-get"}},
	{"bare `GET`, AutoPipeline, full duplex / not", "replay/bare-get-auto-duplex", []string{"replay/bare-get"}},
	{"first request / fiber", "first/onceguard", []string{"first/fiber"}},
	{"replay / fiber", "replay/onceguard", []string{"replay/fiber"}},
	{"eight at a time / fiber", "duplicates/onceguard", []string{"duplicates/fiber"}},
	{"acquire and release / bare", "lock/onceguard", []string{"lock/bare"}},
	{"acquire and release / bsm/redislock", "lock/onceguard", []string{"lock/redislock"}},
	{"acquire and release / redsync", "lock/onceguard", []string{"lock/redsync"}},
	{"acquire and release / rueidislock", "lock/onceguard", []string{"lock/rueidislock"}},
	{
		"acquire and release / the best of these three in each round",
		"lock/onceguard", []string{"lock/redislock", "lock/redsync", "lock/rueidislock"},
	},
}

// tables are what is printed: for each number of callers a column.
type tables struct {
	all      []contender
	http     bool
	columns  []column
	failures []string
}

func newTables(cfg config) *tables { return &tables{all: contenders(cfg.http), http: cfg.http} }

func (t *tables) add(c column) {
	t.columns = append(t.columns, c)
	t.failures = append(t.failures, c.failures...)
}

func (t *tables) write(w io.Writer) {
	t.table(w, "Ratios of throughput", t.ratios())
	for _, group := range groups(t.all) {
		t.table(w, titles[group]+", thousands a second", t.rates(group))
	}
	if !t.http { // there the client's and the server's would be counted too
		t.table(w, "Allocations for each, over the handler's own", t.allocations())
	}
	for _, failure := range t.failures {
		fmt.Fprintf(w, "\n**Failed:** %s\n", failure)
	}
}

// row is a label and a cell for each column.
type row struct {
	label string
	cells []string
}

// row asks for the cells. It has none if none says anything.
func (t *tables) row(label string, cell func(column) string) []row {
	r := row{label: label}
	for _, c := range t.columns {
		r.cells = append(r.cells, cell(c))
	}
	if strings.Join(r.cells, "") == "" {
		return nil
	}
	return []row{r}
}

func (t *tables) ratios() (rows []row) {
	for _, c := range comparisons {
		rows = append(rows, t.row(c.label, func(col column) string {
			return spreadOf(ratios(col.rounds, c.contender, c.others...)).format("%.2f")
		})...)
	}
	return rows
}

func (t *tables) rates(group string) (rows []row) {
	for _, c := range t.all {
		if c.group != group {
			continue
		}
		rows = append(rows, t.row(c.label, func(col column) string {
			return spreadOf(each(col.rounds, []string{c.id()}, func(s []score) float64 {
				return s[0].rate / 1000
			})).format("%.1f")
		})...)
	}
	return rows
}

func (t *tables) allocations() (rows []row) {
	for _, c := range t.all {
		ids := []string{c.id()}
		if c.baseline != "" {
			ids = append(ids, c.group+"/"+c.baseline)
		}
		over := func(of func(score) float64) func([]score) float64 {
			return func(s []score) float64 {
				if len(s) == 2 {
					return of(s[0]) - of(s[1])
				}
				return of(s[0])
			}
		}
		rows = append(rows, t.row(titleOf(c), func(col column) string {
			allocs := each(col.rounds, ids, over(func(s score) float64 { return s.allocs }))
			bytes := each(col.rounds, ids, over(func(s score) float64 { return s.bytes / 1024 }))
			if len(allocs) == 0 {
				return ""
			}
			return fmt.Sprintf("%.1f, %.1f KiB", spreadOf(allocs).median, spreadOf(bytes).median)
		})...)
	}
	return rows
}

func titleOf(c contender) string {
	title, _, _ := strings.Cut(titles[c.group], ":")
	return title + ": " + c.label
}

// table writes nothing for no rows.
func (t *tables) table(w io.Writer, title string, rows []row) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n### %s\n\n|", title)
	for _, c := range t.columns {
		fmt.Fprintf(w, " | %s", plural(c.callers, "caller"))
	}
	fmt.Fprintf(w, " |\n|---|%s\n", strings.Repeat("---|", len(t.columns)))
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %s |\n", r.label, strings.Join(r.cells, " | "))
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
