// The tables of a suite.

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// comparisons are those of the comparison with the bare commands and with others.
var comparisons = []comparison{
	{"first request / the bare two commands", "first/onceguard first/bare"},
	{"replay / bare `GET`", "replay/onceguard replay/bare-get"},
	{"replay / bare `SET NX GET PX`", "replay/onceguard replay/bare-claim"},
	{"in flight / bare `SET NX GET PX`", "in-flight/onceguard in-flight/bare-claim"},
	{"the bare two commands, AutoPipeline / not", "first/bare-auto first/bare"},
	{"the bare two commands, AutoPipeline, full duplex / not", "first/bare-auto-duplex first/bare"},
	{"bare `GET`, AutoPipeline / not", "replay/bare-get-auto replay/bare-get"},
	{"bare `GET`, AutoPipeline, full duplex / not", "replay/bare-get-auto-duplex replay/bare-get"},
	{"first request / fiber", "first/onceguard first/fiber"},
	{"replay / fiber", "replay/onceguard replay/fiber"},
	{"eight at a time / fiber", "duplicates/onceguard duplicates/fiber"},
	{"acquire and release / bare", "lock/onceguard lock/bare"},
	{"acquire and release / bsm/redislock", "lock/onceguard lock/redislock"},
	{"acquire and release / redsync", "lock/onceguard lock/redsync"},
	{"acquire and release / rueidislock", "lock/onceguard lock/rueidislock"},
	{"acquire and release / the best of these three in each round",
		"lock/onceguard lock/redislock lock/redsync lock/rueidislock"},
}

// table is rows of one cell for each column.
type table struct {
	title   string
	columns []column
	rows    [][]string // each begins with its label
}

// add adds a row of what cell makes of the scores of those contenders, in all rounds that have all of them. A cell
// without such a round is empty. A row of empty cells is left out.
func (t *table) add(label string, cell func(rounds [][]score) string, ids ...string) {
	row := []string{label}
	for _, c := range t.columns {
		text := ""
		if rounds := each(c.rounds, ids...); len(rounds) > 0 {
			text = cell(rounds)
		}
		row = append(row, text)
	}
	if strings.Join(row[1:], "") != "" {
		t.rows = append(t.rows, row)
	}
}

// write writes nothing if there are no rows.
func (t *table) write(w io.Writer) {
	if len(t.rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n### %s\n", t.title)
	head := []string{""}
	for _, c := range t.columns {
		head = append(head, c.title)
	}
	tableHead(w, head...)
	for _, row := range t.rows {
		tableRow(w, row...)
	}
}

// writeTables writes the ratios, the rates of each group, the allocations and the failures, which are also its error.
func (s suite) writeTables(w io.Writer, columns []column) error {
	ratios := table{title: "Ratios of throughput", columns: columns}
	for _, c := range s.comparisons {
		ratios.add(c.label, func(rounds [][]score) string { return of(rounds, ratio).format("%.2f") }, strings.Fields(c.ids)...)
	}
	ratios.write(w)
	allocations := table{title: "Allocations for each, over the handler's own", columns: columns}
	for _, group := range s.groups {
		rates := table{title: group.title + ", " + s.rate.name, columns: columns}
		short, _, _ := strings.Cut(group.title, ":")
		for _, c := range s.contenders {
			if c.group != group.name {
				continue
			}
			rates.add(c.label, func(rounds [][]score) string {
				return of(rounds, func(scores []score) float64 { return scores[0].rate / s.rate.size }).format(s.rate.format)
			}, c.id())
			ids := []string{c.id()}
			if c.baseline != "" {
				ids = append(ids, c.group+"/"+c.baseline)
			}
			allocations.add(short+": "+c.label, allocs, ids...)
		}
		rates.write(w)
	}
	if !s.served {
		allocations.write(w)
	}
	var failures []error
	for _, c := range columns {
		for _, failure := range c.failures {
			fmt.Fprintf(w, "\n**Failed:** %v\n", failure)
		}
		failures = append(failures, c.failures...)
	}
	return errors.Join(failures...)
}

// allocs writes the allocations and their size, without those of the second score if there is one.
func allocs(rounds [][]score) string {
	over := func(property func(score) float64) float64 {
		return of(rounds, func(s []score) float64 {
			value := property(s[0])
			for _, baseline := range s[1:] {
				value -= property(baseline)
			}
			return value
		}).median
	}
	return fmt.Sprintf("%.1f, %.1f KiB", over(func(s score) float64 { return s.allocs }),
		over(func(s score) float64 { return s.bytes / 1024 }))
}
