// The tables of a suite.

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

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

// writeTables writes the ratios, the rates of each group, and the failures, which are also its error.
func (s suite) writeTables(w io.Writer, columns []column) error {
	ratios := table{title: "Ratios of throughput", columns: columns}
	for _, c := range s.comparisons {
		ratios.add(c.label, func(rounds [][]score) string { return of(rounds, ratio).format("%.2f") }, strings.Fields(c.ids)...)
	}
	ratios.write(w)
	for _, group := range s.groups {
		rates := table{title: group.title + ", " + s.rate.name, columns: columns}
		for _, c := range s.contenders {
			if c.group == group.name {
				rates.add(c.label, func(rounds [][]score) string {
					return of(rounds, func(scores []score) float64 { return scores[0].rate / s.rate.size }).format(s.rate.format)
				}, c.id())
			}
		}
		rates.write(w)
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
