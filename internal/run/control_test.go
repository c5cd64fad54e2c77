package run_test

import (
	"errors"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/run"
)

// What an operation says, in any order: the last Keep or Unknown wins, and Discard counts only without them, and before
// anything is sent.
func TestControl(t *testing.T) {
	t.Parallel()
	const usual = time.Hour
	keep, unknown := (*run.Control).Keep, (*run.Control).Unknown
	sending, cutOff := (*run.Control).Sending, (*run.Control).CutOff
	discard := func(c *run.Control) { _ = c.Discard() }
	refused := func(c *run.Control) {
		if err := c.Discard(); !errors.Is(err, run.ErrCommitted) {
			t.Errorf("Discard: %v, want ErrCommitted", err)
		}
	}
	retain := func(d time.Duration) func(*run.Control) { return func(c *run.Control) { c.Retain(d) } }
	type says []func(*run.Control)
	for name, test := range map[string]struct {
		says says
		wish run.Wish
		sent bool
		keep time.Duration
	}{
		"nothing":                {nil, run.WishNothing, false, usual},
		"keep":                   {says{keep, refused}, run.WishKeep, false, usual},
		"unknown":                {says{unknown, refused}, run.WishUnknown, false, usual},
		"discard":                {says{discard, discard}, run.WishDiscard, false, usual},
		"discard, keep":          {says{discard, keep, refused}, run.WishKeep, false, usual},
		"discard, unknown":       {says{discard, unknown, refused}, run.WishUnknown, false, usual},
		"keep, unknown":          {says{keep, unknown}, run.WishUnknown, false, usual},
		"unknown, keep":          {says{unknown, keep}, run.WishKeep, false, usual},
		"discard, sent":          {says{discard, sending, refused}, run.WishNothing, true, usual},
		"keep, sent":             {says{keep, sending}, run.WishKeep, true, usual},
		"unknown, sent":          {says{unknown, sending}, run.WishUnknown, true, usual},
		"retain":                 {says{retain(time.Minute)}, run.WishNothing, false, time.Minute},
		"retain a millisecond":   {says{retain(time.Millisecond)}, run.WishNothing, false, time.Millisecond},
		"retain less":            {says{retain(time.Millisecond - 1)}, run.WishNothing, false, usual},
		"late":                   {says{cutOff, keep, refused, unknown, retain(time.Minute)}, run.WishNothing, false, usual},
		"discard, late the rest": {says{discard, cutOff, keep, refused}, run.WishDiscard, false, usual},
		"sent late":              {says{discard, cutOff, sending}, run.WishNothing, true, usual},
	} {
		c := run.NewControl(usual)
		for _, say := range test.says {
			say(c)
		}
		if wish, sent, keep := c.Said(); wish != test.wish || sent != test.sent || keep != test.keep {
			t.Errorf("%s: %v, %v, %v; want %v, %v, %v", name, wish, sent, keep, test.wish, test.sent, test.keep)
		}
	}
}
