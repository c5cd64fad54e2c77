// Package ormtest has the examples of sqljournal with ORMs. It is a module of its own, so that no ORM reaches the go.sum
// of those who use sqljournal.
package ormtest
