package pipeline

import (
	"testing"
	"time"
)

const (
	pacerTimeout = 800 * time.Millisecond // OpTimeout in all tests of the pacer
	ms           = time.Millisecond
)

// A batch has three quarters of the commands that wait, rounded up, and at most a third of many, smallBatch, or max.
func TestPacerBatchSize(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ waiting, least, large int }{ // the size with the least max and with the largest
		{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {3, 3, 3}, {4, 3, 3}, {15, 12, 12}, {20, 15, 15}, {21, 16, 16}, {48, 16, 16},
		{50, 16, 16}, {51, 16, 17}, {100, 16, 33}, {1000, 16, 333}, {5000, 16, 1666}, {9000, 16, 2048},
	} {
		p := newPacer(pacerTimeout)
		least := p.batchSize(test.waiting)
		p.max = largestBatch
		if large := p.batchSize(test.waiting); least != test.least || large != test.large {
			t.Errorf("%d waiting: batches of %d and %d, want %d and %d", test.waiting, least, large, test.least, test.large)
		}
	}
}

func TestPacerTooLate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, test := range map[string]struct {
		took     time.Duration
		inFlight int
		want     time.Time
	}{
		"nothing in flight":                     {0, 0, time.Time{}},
		"nothing in flight, after slow batches": {pacerTimeout, 0, time.Time{}},
		"nothing known yet":                     {0, 1, now.Add(-pacerTimeout)},
		"little load":                           {8 * ms, 1, now.Add(8*ms - pacerTimeout)},
		"much load":                             {200 * ms, maxInFlight, now.Add(-600 * ms)},
		"a batch takes half of the timeout":     {400 * ms, maxInFlight, now.Add(-400 * ms)},
		"a batch takes more than half of it":    {500 * ms, maxInFlight, now.Add(-400 * ms)},
		"a batch takes longer than the timeout": {time.Hour, maxInFlight, now.Add(-400 * ms)},
	} {
		p := newPacer(pacerTimeout)
		p.took = test.took
		if got := p.tooLateCutoff(now, test.inFlight); !got.Equal(test.want) {
			t.Errorf("%s: %v from now, want %v", name, got.Sub(now), test.want.Sub(now))
		}
	}
}

func TestPacerAdapt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		most     int
		took     time.Duration
		commands int
		want     int
	}{
		"just a quarter of the timeout":     {256, 200 * ms, 256, 256},
		"above a quarter":                   {256, 200*ms + 1, 256, 128},
		"above a quarter, a smaller batch":  {256, 201 * ms, 101, 50},
		"above a quarter, a larger batch":   {64, 201 * ms, 256, 64}, // began before the maximum fell
		"above a quarter, a small batch":    {256, time.Hour, 20, smallBatch},
		"below an eighth, a full batch":     {256, 100*ms - 1, 256, 512},
		"just an eighth, a full batch":      {256, 100 * ms, 256, 256},
		"below an eighth, not quite full":   {256, ms, 255, 256},
		"below an eighth, more than full":   {256, ms, 257, 256},
		"below an eighth, near the largest": {largestBatch/2 + 1, ms, largestBatch/2 + 1, largestBatch},
		"below an eighth, at the largest":   {largestBatch, ms, largestBatch, largestBatch},
	} {
		p := newPacer(pacerTimeout)
		p.max, p.took = test.most, 40*ms
		start := time.Now()
		now := start.Add(test.took)
		p.adapt(start, now, test.commands)
		if p.max != test.want {
			t.Errorf("%s: the maximum is %d, want %d", name, p.max, test.want)
		}
		if want := (3*40*ms + test.took) / 4; !p.completed.Equal(now) || p.took != want {
			t.Errorf("%s: complete at %v, and a batch takes %v, want %v and %v", name, p.completed, p.took, now, want)
		}
	}
}

func TestPacerReplied(t *testing.T) {
	t.Parallel()
	p := newPacer(pacerTimeout)
	for _, test := range []struct{ bytes, want int }{{800, 100}, {100, 100}, {0, 88}} {
		if p.replied(test.bytes); p.replyBytes != test.want {
			t.Errorf("after a reply of %d bytes: %d, want %d", test.bytes, p.replyBytes, test.want)
		}
	}
}

func TestPacerSilence(t *testing.T) {
	t.Parallel()
	p := newPacer(pacerTimeout)
	start := time.Now()
	if got := p.maxSilence(); got != 80*ms {
		t.Errorf("probes after %v, want a tenth of the limit", got)
	}
	if got := p.stalledBefore(start); !got.Equal(start.Add(-80 * ms)) {
		t.Errorf("stalled before %v, want a tenth of the limit before the start", got.Sub(start))
	}
	if !p.silent(start) {
		t.Error("a node that has never completed a batch is not silent")
	}
	p.adapt(start.Add(-ms), start, 1)
	for after, want := range map[time.Duration]bool{0: false, 80*ms - 1: false, 80 * ms: true, time.Hour: true} {
		if got := p.silent(start.Add(after)); got != want {
			t.Errorf("%v after a batch: silent is %t, want %t", after, got, want)
		}
	}
}
