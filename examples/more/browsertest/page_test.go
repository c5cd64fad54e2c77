package browsertest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// What each button does to both shops.
func TestTries(t *testing.T) {
	t.Parallel()
	tests := []struct {
		try    string
		orders string   // of the left and the right shop
		right  []string // what the right shop's requests came to, in any order
	}{
		{"double", "2 €98 / 1 €49", []string{"charged · 201", "waited, got the same answer · 201"}},
		{"lose", "2 €98 / 1 €49", []string{"charged, but the client was gone · 201", "got the same answer again · 201"}},
		{"instances", "2 €98 / 1 €49", []string{"charged · 201", "waited, got the same answer · 201"}},
		{"hasty", "2 €98 / 1 €49", []string{"charged · 201", "refused: the first still runs · 409"}},
		{"amount", "2 €294 / 1 €49", []string{"charged · 201", "refused: not the same order · 422"}},
		{"empty", "2 €98 / 2 €98", []string{"charged, but Redis lost the key · 409", "charged again · 201"}},
	}
	for _, tt := range tests {
		t.Run(tt.try, func(t *testing.T) {
			t.Parallel()
			b := open(t)
			b.load()
			b.try(tt.try)
			if got := b.orders(); got != tt.orders {
				t.Errorf("orders: got %s, want %s", got, tt.orders)
			}
			got := strings.Join(b.stories("protected"), "\n")
			for _, want := range tt.right {
				if !strings.Contains(got, want) {
					t.Errorf("the right shop's requests: got %q, want %q among them", got, want)
				}
			}
			if tt.try == "empty" && !strings.Contains(got, "Redis is empty now") {
				t.Errorf("the right shop's requests: got %q, want the moment when Redis was emptied", got)
			}
			if got := b.text("#verdict"); !strings.Contains(got, "without onceguard charged twice") {
				t.Errorf("the verdict: %q", got)
			}
			b.screenshot("try-" + tt.try)
		})
	}
}

// The lines for a shell do what the buttons do, and the page shows it.
func TestCurl(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("left out: %v", err)
	}
	tests := map[string]string{"double": "2 / 1", "instances": "2 / 1", "hasty": "2 / 1", "amount": "2 / 1", "empty": "2 / 2"}
	for try, want := range tests {
		t.Run(try, func(t *testing.T) {
			t.Parallel()
			b := open(t)
			b.load()
			lines := b.paste(try)
			b.await(`document.querySelectorAll("[data-lane=unprotected] .requests [data-state=done]").length === 2 &&
				document.querySelectorAll("[data-lane=protected] .requests [data-state=done]").length === 2`)
			if got := b.text(`[data-lane=unprotected] .orders`) + " / " + b.text(`[data-lane=protected] .orders`); got != want {
				t.Errorf("orders: got %s, want %s\n%s", got, want, lines)
			}
		})
	}
	// On a busy machine curl may give up before it has sent the first request, so there may be only one order on the left.
	t.Run("lose", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		b.load()
		lines := b.paste("lose")
		b.await(`document.querySelectorAll(".requests li").length > 0 && !document.querySelector("[data-state=sent], [data-state=running]")`)
		if got := b.text(`[data-lane=protected] .orders`); got != "1" {
			t.Errorf("orders of the right shop: got %s, want 1\n%s", got, lines)
		}
	})
}

// paste runs the lines that the page shows for an experiment in a shell.
func (b *browser) paste(try string) (lines string) {
	b.t.Helper()
	b.run(chromedp.Evaluate(`explain("`+try+`")`, nil))
	lines = b.text("#curl")
	if out, err := exec.CommandContext(b.ctx, "sh", "-c", lines).CombinedOutput(); err != nil {
		b.t.Fatalf("%s\n%v: %s", lines, err, out)
	}
	return lines
}

// Everything can be done with the keyboard alone, and what has the focus can be seen.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.load()
	var wanted, reached []string
	b.eval(`[...document.querySelectorAll("a[href], button, input:not([type=hidden]), [tabindex]")].map((e, i) => e.dataset.tab = String(i))`, &wanted)
	for range wanted {
		b.run(chromedp.KeyEvent(kb.Tab))
		var at struct {
			Tab     string
			Visible bool
		}
		b.eval(`({Tab: document.activeElement.dataset.tab || "", Visible: getComputedStyle(document.activeElement).outlineStyle === "solid" &&
			parseFloat(getComputedStyle(document.activeElement).outlineWidth) >= 2})`, &at)
		if reached = append(reached, at.Tab); !at.Visible {
			t.Errorf("the focus on %s cannot be seen", at.Tab)
		}
	}
	if got, want := asJSON(reached), asJSON(wanted); got != want {
		t.Errorf("order of the focus: got %s, want %s", got, want)
	}
	b.run(chromedp.Focus(`[data-try="amount"]`, chromedp.ByQuery), chromedp.KeyEvent(kb.Enter))
	b.await(`document.body.dataset.done === "amount"`)
	if got, want := b.orders(), "2 €294 / 1 €49"; got != want {
		t.Errorf("orders: got %s, want %s", got, want)
	}
	var focused string
	if b.eval(`document.activeElement.dataset.try`, &focused); focused != "amount" {
		t.Errorf("the focus was lost: it is on %q", focused)
	}
}
