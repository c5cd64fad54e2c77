// Package gorm has an example of sqljournal with gorm. It is here so that no ORM reaches the go.sum of those who use
// sqljournal.
package gorm
