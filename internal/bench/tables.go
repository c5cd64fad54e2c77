// The tables of a suite.

package main

import (
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

// add adds a row of the spreads of what value returns for each round.
func (t *table) add(label, verb string, value func(scores) float64) {
	row := []string{label}
	for _, c := range t.columns {
		var values []float64
		for _, round := range c.rounds {
			values = append(values, value(round))
		}
		row = append(row, spreadOf(values).format(verb))
	}
	t.rows = append(t.rows, row)
}

func (t *table) write(w io.Writer) {
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

// writeTables writes the ratios, and the rates of each group.
func (s suite) writeTables(w io.Writer, columns []column) {
	ratios := table{title: "Ratios of throughput", columns: columns}
	for _, c := range s.comparisons {
		ids := strings.Fields(c.ids)
		ratios.add(c.label, "%.2f", func(round scores) float64 { return ratio(round, ids) })
	}
	ratios.write(w)
	for _, group := range s.groups {
		rates := table{title: group.title + ", " + s.rate.name, columns: columns}
		for _, c := range s.contenders {
			if c.group == group.name {
				rates.add(c.label, s.rate.format, func(round scores) float64 { return round[c.id()] / s.rate.size })
			}
		}
		rates.write(w)
	}
}
