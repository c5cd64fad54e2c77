package lock_test

import (
	"time"
)

// In a synctest bubble time stands still while a goroutine runs, and jumps to the next timer when all are blocked: the
// instants below are exact.

const ttl = 9 * time.Second
