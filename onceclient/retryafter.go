package onceclient

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// retryAfter returns the time to wait by Retry-After, and 0 if it is absent, invalid or in the past. A date is compared
// with the response's Date, because the clocks of client and server may differ, and with now if there is none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	seconds, err := strconv.ParseUint(value, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(math.MaxInt64/time.Second))) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return max(at.Sub(now), 0)
}
