//go:build race

package middleware_test

// raced tells that the race detector is on: it allocates, and sync.Pool forgets at random.
const raced = true
