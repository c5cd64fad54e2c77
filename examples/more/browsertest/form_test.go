package browsertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Without JavaScript there is the form: a double click places one order, and back with another quantity is a friendly
// page.
func TestFormWithoutJavaScript(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.run(emulation.SetScriptExecutionDisabled(true), chromedp.Navigate(b.url+"/"))
	if got := b.text("main"); strings.Contains(got, "Make it worse") || !strings.Contains(got, "need JavaScript") {
		t.Errorf("the page without JavaScript: %s", got)
	}
	b.check("without JavaScript")
	b.screenshot("without-javascript")
	var key, thanks, seen string
	b.eval(`document.querySelector("[name=idempotency_key]").value`, &key)
	b.run(chromedp.DoubleClick("form button", chromedp.ByQuery))
	b.awaitPage("Thank you")
	b.eval("location.href", &thanks)

	b.back()
	b.awaitPage("One double click. Two shops.")
	// The browser has kept the page, or loaded it again with another key, as it likes. Here it has kept the page.
	b.eval(fmt.Sprintf(`document.querySelector("[name=idempotency_key]").value = %q`, key), nil)
	b.eval(`document.querySelector("[name=quantity]").value = 5`, nil)
	b.click("form button")
	b.awaitPage("You have already placed this order")
	b.screenshot("already")
	var again string
	if b.eval(`document.querySelector("a:last-of-type[href^='/#']").getAttribute("href")`, &again); again != "/#form" {
		t.Errorf("Order again: got %s, want /#form", again)
	}
	b.click(`a[href^="/orders/"]`)
	b.awaitPage("Thank you")
	if b.eval("location.href", &seen); seen != thanks {
		t.Errorf("See it: got %s, want %s", seen, thanks)
	}
	b.run(chromedp.Navigate(b.url + again))
	b.awaitPage("One double click. Two shops.")
	if got := strings.TrimSpace(b.text(".placed")); got != "1 × coffee" {
		t.Errorf("placed: got %q, want one order of one coffee", got)
	}
	b.eval(`document.querySelector("[name=quantity]").focus()`, nil)
	b.run(chromedp.KeyEvent(kb.Enter))
	b.awaitPage("Thank you")
}

// click clicks an element. chromedp.Click does not find those of a page that the browser has kept.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("document.querySelector(%q).click()", selector), nil)
}

// back goes back by one page. chromedp.NavigateBack would wait for the page to load, and one that was kept does not.
func (b *browser) back() {
	b.t.Helper()
	b.run(chromedp.Evaluate("history.back()", nil))
}

// awaitPage waits until the page with that heading is loaded. It does not need the page's JavaScript, as await does.
func (b *browser) awaitPage(heading string) {
	b.t.Helper()
	expression := fmt.Sprintf(`document.readyState === "complete" && document.querySelector("h1")?.innerText === %q`, heading)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	deadline := time.After(patience)
	for there := false; !there; {
		// An error means that the page which was asked is being replaced.
		_ = chromedp.Run(b.ctx, chromedp.Evaluate(expression, &there))
		select {
		case <-look.C:
		case <-deadline:
			b.t.Fatalf("the page %q did not come", heading)
		}
	}
}
