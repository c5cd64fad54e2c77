package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// A column is what oncecheck says of a contender.
type column struct {
	name   string
	checks []check
}

type check struct{ ID, Level, Verdict string }

func readColumn(name string, report []byte) (column, error) {
	var r struct{ Checks []check }
	err := json.Unmarshal(report, &r)
	return column{name, r.Checks}, err
}

// writeTable writes the groups of checks, or each check that does not hold everywhere, as Markdown.
func writeTable(w io.Writer, columns []column, each bool) error {
	header, line := "| |", "|---|"
	for _, c := range columns {
		header += " " + c.name + " |"
		line += "---|"
	}
	rows := groupRows(columns)
	if each {
		rows = checkRows(columns)
	}
	_, err := fmt.Fprintf(w, "%s\n%s\n%s", header, line, strings.Join(rows, ""))
	return err
}

// groupRows returns a row for each group of checks: how many held of those that could be asked.
func groupRows(columns []column) []string {
	var rows []string
	for _, group := range groups(columns) {
		row := "| " + group + " |"
		for _, c := range columns {
			held, asked := 0, 0
			for _, check := range c.checks {
				name, _, _ := strings.Cut(check.ID, "/")
				if name == group && check.Verdict != "not asked" {
					asked++
					if check.Verdict == "held" {
						held++
					}
				}
			}
			if asked > 0 {
				row += fmt.Sprintf(" %d/%d", held, asked)
			}
			row += " |"
		}
		rows = append(rows, row+"\n")
	}
	return rows
}

// groups returns the groups in the order of the checks.
func groups(columns []column) []string {
	var names []string
	for _, check := range columns[0].checks {
		name, _, _ := strings.Cut(check.ID, "/")
		if len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	return names
}

// checkRows returns a row for each check that does not hold everywhere.
func checkRows(columns []column) []string {
	var rows []string
	for i, check := range columns[0].checks {
		row, failed := fmt.Sprintf("| `%s` %s |", check.ID, check.Level), false
		for _, c := range columns {
			verdict := c.checks[i].Verdict
			failed = failed || verdict == "failed"
			row += " " + verdict + " |"
		}
		if failed {
			rows = append(rows, row+"\n")
		}
	}
	return rows
}
