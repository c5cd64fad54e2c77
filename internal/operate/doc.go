// Package operate is the command onceguard without its main package. There are two: cmd/onceguard, whose package comment
// is the manual, and sqljournal/cmd/onceguard, which has database drivers and so reads a journal too.
package operate
