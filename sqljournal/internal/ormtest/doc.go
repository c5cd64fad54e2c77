// Package ormtest has the examples of sqljournal with ORMs. It is a separate module, so that no ORM reaches the
// go.sum of those who use sqljournal.
package ormtest
