package main

import (
	"math"
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Millisecond)
	}
	c := h.take()
	if c.total() != 1000 {
		t.Errorf("%d counted, want 1000", c.total())
	}
	for q, want := range map[float64]time.Duration{
		0.001: time.Millisecond, 0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond, 1: time.Second,
	} {
		if got := c.quantile(q); math.Abs(float64(got-want)) > 0.02*float64(want) {
			t.Errorf("quantile %v = %v, want %v", q, got, want)
		}
	}
	if again := h.take(); again.total() != 0 || again.quantile(0.5) != 0 {
		t.Errorf("%d were counted twice", again.total())
	}
}

func TestBuckets(t *testing.T) {
	last := -1
	for d := time.Duration(0); d < time.Hour; d += d/100 + 1 {
		bucket := bucketOf(d)
		if bucket < last || bucket > last+1 {
			t.Fatalf("%d ns is in bucket %d, the one before in %d", d, bucket, last)
		}
		last = bucket
		if got := middle(bucket); math.Abs(float64(got-d)) > max(1, 0.02*float64(d)) {
			t.Fatalf("the bucket of %d ns stands for %d", d, got)
		}
	}
	if got := bucketOf(math.MaxInt64); got >= buckets {
		t.Errorf("the longest time is in bucket %d of %d", got, buckets)
	}
	if got := bucketOf(-1); got != 0 {
		t.Errorf("a clock that went back is in bucket %d", got)
	}
}
