package operate

import (
	"errors"
	"strconv"
	"strings"

	"github.com/onceguard/onceguard/middleware"
)

// Statuses is a range of statuses, as "503" or "500-599". The zero value has none.
type Statuses struct{ low, high int }

// Set parses a range. It is for package flag, too.
func (s *Statuses) Set(text string) error {
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	var errLow, errHigh error
	s.low, errLow = strconv.Atoi(low)
	s.high, errHigh = strconv.Atoi(high)
	if len(text) > len("500-599") || errLow != nil || errHigh != nil || s.low < 200 || s.high > 999 || s.low > s.high {
		return errors.New("want one such as 503, or a range such as 500-599")
	}
	return nil
}

func (s *Statuses) String() string { return "" }

func (s *Statuses) isGiven() bool { return s.high > 0 }

// Has reports whether a response with one of the statuses is stored.
func (s *Statuses) Has(i middleware.Inspection) bool {
	return i.Stored != nil && s.low <= i.Stored.Status && i.Stored.Status <= s.high
}
