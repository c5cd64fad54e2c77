// Markdown tables, and numbers as they are written in them.

package main

import (
	"fmt"
	"io"
	"strings"
)

// tableHead starts a table after a blank line. The first title is usually empty.
func tableHead(w io.Writer, titles ...string) {
	fmt.Fprintln(w)
	tableRow(w, titles...)
	fmt.Fprintln(w, "|"+strings.Repeat("---|", len(titles)))
}

func tableRow(w io.Writer, cells ...string) {
	fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
