package main

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// histogram counts times, each known to within 2 %. The zero value has none. Its methods are safe for concurrent use.
type histogram [buckets]atomic.Int64

// counts are those of a histogram at one moment.
type counts [buckets]int64

// A bucket's number is how often the nanoseconds were halved until they were below 64, times 32, plus what was left.
const buckets = 58*32 + 64

func bucketOf(d time.Duration) int {
	n := uint64(max(d, 0))
	halved := max(0, bits.Len64(n)-6)
	return halved*32 + int(n>>halved)
}

// middle returns the time in the middle of a bucket.
func middle(bucket int) time.Duration {
	halved := max(0, bucket/32-1)
	return time.Duration((float64(bucket-halved*32) + 0.5) * float64(uint64(1)<<halved))
}

func (h *histogram) add(d time.Duration) { h[bucketOf(d)].Add(1) }

// take returns what was counted since it was called before.
func (h *histogram) take() *counts {
	var c counts
	for i := range h {
		c[i] = h[i].Swap(0)
	}
	return &c
}

func (c *counts) total() int64 {
	var total int64
	for _, n := range c {
		total += n
	}
	return total
}

// quantile returns a time that the part q of all did not exceed, 0 if there are none.
func (c *counts) quantile(q float64) time.Duration {
	left := int64(math.Ceil(q * float64(c.total())))
	for bucket, n := range c {
		if left -= n; n > 0 && left <= 0 {
			return middle(bucket)
		}
	}
	return 0
}
