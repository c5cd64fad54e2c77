package pipeline

import (
	"testing"
	"time"
)

const (
	pacerTimeout = 800 * time.Millisecond // OpTimeout in all tests of the pacer
	ms           = time.Millisecond
)

func TestPacerBatch(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ waiting, first, least, large int }{
		// waiting commands and, for each maximum, the size of the next batch
		{0, 0, 0, 0},
		{1, 1, 1, 1},
		{2, 2, 2, 2},
		{3, 3, 3, 3},
		{4, 3, 3, 3},
		{15, 12, 12, 12},
		{16, 12, 12, 12},
		{20, 15, 15, 15},
		{21, 16, 16, 16},
		{31, 16, 16, 16},
		{32, 16, 16, 16},
		{48, 16, 16, 16},
		{50, 16, 16, 16},
		{51, 17, 16, 17},
		{64, 21, 16, 21},
		{100, 33, 16, 33},
		{256, 85, 16, 85},
		{768, 256, 16, 256},
		{1000, 256, 16, 333},
		{5000, 256, 16, 1666},
	} {
		for name, c := range map[string]struct{ most, want int }{
			"first maximum":    {newPacer(pacerTimeout).max, test.first},
			"smallest maximum": {smallBatch, test.least},
			"largest maximum":  {largestMax, test.large},
		} {
			p := newPacer(pacerTimeout)
			p.max = c.most
			if got := p.batchSize(test.waiting); got != c.want {
				t.Errorf("%s, %d waiting: a batch of %d, want %d", name, test.waiting, got, c.want)
			}
		}
	}
}

// If a command waits, a batch has at least one, and never more than three quarters of those that
// wait, rounded up, or than the maximum.
func TestPacerBatchBounds(t *testing.T) {
	t.Parallel()
	for most := smallBatch; most <= largestMax; most *= 3 {
		p := newPacer(pacerTimeout)
		p.max = most
		last := 0
		for waiting := 1; waiting < 10_000; waiting++ {
			got := p.batchSize(waiting)
			if got < 1 || 4*got > 3*waiting+3 || got > most || got < last {
				t.Fatalf("maximum %d, %d waiting: a batch of %d, after %d", most, waiting, got, last)
			}
			last = got
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

		quickest time.Duration // of the batches before
	}{
		"just a quarter of the timeout":         {256, 200 * ms, 256, 256, 0},
		"above a quarter":                       {256, 200*ms + 1, 256, 128, 0},
		"above a quarter, a smaller batch":      {256, 201 * ms, 100, 50, 0},
		"above a quarter, an odd batch":         {256, 201 * ms, 101, 50, 0},
		"above a quarter, a larger batch":       {64, 201 * ms, 256, 64, 0}, // began before the maximum fell
		"above a quarter, a small batch":        {256, 201 * ms, 20, smallBatch, 0},
		"above a quarter, one command":          {256, time.Hour, 1, smallBatch, 0},
		"above a quarter, at the least":         {smallBatch, time.Hour, smallBatch, smallBatch, 0},
		"below a sixteenth, a full batch":       {256, 50*ms - 1, 256, 512, 0},
		"just a sixteenth, a full batch":        {256, 50 * ms, 256, 256, 0},
		"below a sixteenth, not quite full":     {256, ms, 255, 256, 0},
		"below a sixteenth, more than full":     {256, ms, 257, 256, 0},
		"below a sixteenth, at the least, full": {smallBatch, ms, smallBatch, 2 * smallBatch, 0},
		"no time at all":                        {256, 0, 256, 512, 0},
		"below a sixteenth, near the largest":   {largestMax/2 + 1, ms, largestMax/2 + 1, largestMax, 0},
		"below a sixteenth, at the largest":     {largestMax, ms, largestMax, largestMax, 0},
		"far, below a sixteenth more":           {256, 110*ms - 1, 256, 512, 60 * ms},
		"far, just a sixteenth more":            {256, 110 * ms, 256, 256, 60 * ms},
		"far, not quite full":                   {256, 60 * ms, 255, 256, 60 * ms},
		"far, above a quarter":                  {256, 201 * ms, 256, 128, 180 * ms},
		"in between":                            {256, 100 * ms, 256, 256, 0},
	} {
		p := newPacer(pacerTimeout)
		p.max, p.quickest = test.most, test.quickest
		start := time.Now()
		now := start.Add(test.took)
		p.adapt(start, now, test.commands)
		if p.max != test.want {
			t.Errorf("%s: the maximum is %d, want %d", name, p.max, test.want)
		}
		if !p.completed.Equal(now) {
			t.Errorf("%s: complete at %v, want %v", name, p.completed, now)
		}
		if want := test.took / 4; p.took != want {
			t.Errorf("%s: a batch takes %v, want %v", name, p.took, want)
		}
	}
}

// Under overload the maximum falls to its least and not below. When batches are fast it grows again, up to its largest.
func TestPacerAdaptsBackAndForth(t *testing.T) {
	t.Parallel()
	p := newPacer(pacerTimeout)
	start := time.Now()
	for range 100 {
		p.adapt(start, start.Add(pacerTimeout), p.max)
	}
	if p.max != smallBatch {
		t.Errorf("after slow batches the maximum is %d, want %d", p.max, smallBatch)
	}
	if p.took < pacerTimeout-ms || p.took > pacerTimeout {
		t.Errorf("a batch takes %v, want about %v", p.took, pacerTimeout)
	}
	for want := 2 * smallBatch; want <= largestMax; want *= 2 {
		p.adapt(start, start.Add(ms), p.max)
		if p.max != want {
			t.Fatalf("after a fast batch the maximum is %d, want %d", p.max, want)
		}
	}
	for range 100 { // doubled without a bound it would overflow
		p.adapt(start, start.Add(ms), p.max)
	}
	if p.max != largestMax {
		t.Errorf("after many fast batches the maximum is %d, want %d", p.max, largestMax)
	}
	p.reset()
	if p.max != initialMax {
		t.Errorf("after reset the maximum is %d, want %d", p.max, initialMax)
	}
}

// fault: batches to a server that is far stay at the initial maximum, although only the distance makes them slow.
// expected: the maximum grows, until a batch takes too long; it grows again once the queue has run empty.
func TestPacerOfFarServer(t *testing.T) {
	t.Parallel()
	p := newPacer(pacerTimeout)
	start := time.Now()
	after := func(elapsed time.Duration, commands, want int) {
		t.Helper()
		p.adapt(start, start.Add(elapsed), commands)
		if p.max != want {
			t.Errorf("after a batch of %d in %v the maximum is %d, want %d", commands, elapsed, p.max, want)
		}
	}
	after(100*ms, 1, 256)
	after(100*ms, 256, 512)
	after(149*ms, 512, 1024)
	after(201*ms, 1024, 512)
	after(100*ms, 512, 512)
	p.reset()
	after(100*ms, 256, 512)
}

func TestPacerReplied(t *testing.T) {
	t.Parallel()
	p := newPacer(pacerTimeout)
	p.replied(800)
	if p.replyBytes != 100 {
		t.Errorf("after one reply of 800 bytes: %d, want 100", p.replyBytes)
	}
	for range 100 {
		p.replied(800)
	}
	if p.replyBytes < 790 || p.replyBytes > 800 {
		t.Errorf("after many replies of 800 bytes: %d", p.replyBytes)
	}
	for range 100 {
		p.replied(0)
	}
	if p.replyBytes < 0 || p.replyBytes > 10 {
		t.Errorf("after many empty replies: %d", p.replyBytes)
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
