// Package browsertest looks at the page of examples/chi-server with a real browser. It is in this module so that users of
// onceguard do not download what drives a browser.
package browsertest

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience bounds every wait. Only a failing test waits this long.
const patience = time.Minute

// browser is one tab of a Chromium, and the example's address.
type browser struct {
	*testing.T
	url string
	run func(...chromedp.Action)
}

// open starts the example, and a Chromium with its page. What the page logs as an error, a violation of its
// Content-Security-Policy for one, fails the test.
func open(t *testing.T, width, height int64) browser {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip("left out: needs chromium")
	}
	b := browser{T: t, url: start(t)}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.WSURLReadTimeout(patience))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses to sandbox itself as root
	}
	allocated, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocated)
	t.Cleanup(cancel)
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("exception: %v", e.ExceptionDetails)
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError && e.Entry.Source != log.SourceNetwork { // a 409 is not a fault of the page
				t.Errorf("the browser's log: %s", e.Entry.Text)
			}
		}
	})
	b.run = func(actions ...chromedp.Action) {
		t.Helper()
		if err := chromedp.Run(ctx, actions...); err != nil {
			t.Fatal(err)
		}
	}
	b.run(emulation.SetDeviceMetricsOverride(width, height, 1, width < 500))
	return b
}

// start runs the example on a port of its own, and returns its address.
func start(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "chi-server")
	build := exec.Command("go", "build", "-o", program, "./examples/chi-server")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(program, "-addr", "127.0.0.1:0", "-op-timeout", "1m")
	cmd.Env = append(os.Environ(), "REDIS_URL=")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var address string
	for address == "" {
		line := make([]byte, 4096) // slog writes a line at a time
		n, err := stderr.Read(line)
		if err != nil {
			t.Fatal(err)
		}
		if _, found, ok := strings.Cut(string(line[:n]), "open="); ok {
			address, _, _ = strings.Cut(found, " ")
		}
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	return address
}

// load loads the page and waits for its first event.
func (b browser) load() {
	b.Helper()
	b.run(chromedp.Navigate(b.url + "/"))
	b.await(`document.body.dataset.events === "on"`)
}

// await waits until an expression in JavaScript is true.
func (b browser) await(expression string) {
	b.Helper()
	b.run(chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(patience), chromedp.WithPollingInterval(20*time.Millisecond)))
}

// eval returns the value of an expression in JavaScript.
func eval[V any](b browser, expression string) (v V) {
	b.Helper()
	b.run(chromedp.Evaluate(expression, &v))
	return v
}

func (b browser) text(selector string) string {
	b.Helper()
	return eval[string](b, fmt.Sprintf("document.querySelector(%q).innerText", selector))
}

// wantOrders checks the counters of both shops.
func (b browser) wantOrders(want string) {
	b.Helper()
	got := b.text(`[data-lane=unprotected] .orders`) + " " + b.text(`[data-lane=unprotected] .euros`) + " / " +
		b.text(`[data-lane=protected] .orders`) + " " + b.text(`[data-lane=protected] .euros`)
	if got != want {
		b.Errorf("orders: got %s, want %s", got, want)
	}
}

// tries are the page's experiments: what both shops have sold afterwards, and what the right one says of its last request.
var tries = map[string]struct{ orders, last string }{
	"double":    {"2 €98 / 1 €49", "got the same answer"},
	"lose":      {"2 €98 / 1 €49", "got the same answer"},
	"instances": {"2 €98 / 1 €49", "got the same answer"},
	"hasty":     {"2 €98 / 1 €49", "refused: the first still runs · 409"},
	"amount":    {"2 €294 / 1 €49", "refused: not the same order · 422"},
	"empty":     {"2 €98 / 2 €98", "charged again · 201"},
}

// What each button does to both shops. The lines for a shell do the same, and the page shows it.
func TestTries(t *testing.T) {
	t.Parallel()
	b := open(t, 1280, 900)
	for try, want := range tries {
		b.load()
		b.run(chromedp.Click(`[data-try="`+try+`"]`, chromedp.ByQuery))
		b.await(fmt.Sprintf("document.body.dataset.done === %q", try))
		b.wantOrders(want.orders)
		if got := b.text("[data-lane=protected] .requests"); !strings.Contains(got, want.last) {
			t.Errorf("%s: got %q, want %q", try, got, want.last)
		}
		if got := b.text("#verdict"); !strings.Contains(got, "without onceguard charged twice") {
			t.Errorf("%s: the verdict is %q", try, got)
		}
		b.startOver()
		if try == "lose" { // on a busy machine curl may give up before it has sent anything
			continue
		}
		lines := b.text("#curl")
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", lines).CombinedOutput(); err != nil {
			t.Fatalf("%s\n%v: %s", lines, err, out)
		}
		b.await(`document.querySelectorAll(".requests [data-state=done]").length === 4`)
		b.wantOrders(want.orders)
		b.startOver()
	}
}

func (b browser) startOver() {
	b.Helper()
	b.run(chromedp.Click("#over", chromedp.ByQuery))
	b.await(`document.querySelectorAll(".requests li").length === 0`)
}

// wcag looks for what breaks WCAG 2.2 AA, as far as a program can see it.
//
//go:embed wcag.js
var wcag string

// The page at the sizes and in the colours that people have.
func TestLook(t *testing.T) {
	t.Parallel()
	for width, colours := range map[int64]string{1280: "light", 390: "dark", 320: "light"} {
		b := open(t, width, 800)
		b.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colours}}))
		b.load()
		for _, try := range []string{"double", "hasty"} {
			b.run(chromedp.Click(`[data-try="`+try+`"]`, chromedp.ByQuery))
			b.await(fmt.Sprintf("document.body.dataset.done === %q", try))
			for _, fault := range eval[[]string](b, fmt.Sprintf("(%s)()", wcag)) {
				t.Errorf("%d pixels, %s, %s: %s", width, colours, try, fault)
			}
		}
		if folder := os.Getenv("ONCEGUARD_SCREENSHOTS"); folder != "" {
			var png []byte
			b.run(chromedp.FullScreenshot(&png, 100))
			if err := os.WriteFile(fmt.Sprintf("%s/%d-%s.png", folder, width, colours), png, 0o666); err != nil {
				t.Error(err)
			}
		}
	}
}

// Everything can be done with the keyboard alone, and what has the focus can be seen.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	b := open(t, 1280, 900)
	b.load()
	wanted := eval[[]string](b, `[...document.querySelectorAll("a[href], button, input:not([type=hidden]), [tabindex]")].map((e, i) => e.dataset.tab = String(i))`)
	for _, want := range wanted {
		b.run(chromedp.KeyEvent(kb.Tab))
		got := eval[string](b, `document.activeElement.dataset.tab + " " + getComputedStyle(document.activeElement).outlineStyle`)
		if got != want+" solid" {
			t.Errorf("the focus is on %s, want a visible one on %s", got, want)
		}
	}
	b.run(chromedp.Focus(`[data-try="amount"]`, chromedp.ByQuery), chromedp.KeyEvent(kb.Enter))
	b.await(`document.body.dataset.done === "amount"`)
	if focused := eval[string](b, `document.activeElement.dataset.try`); focused != "amount" {
		t.Errorf("the focus was lost: it is on %q", focused)
	}
}

// Without JavaScript there is the form: a double click places one order.
func TestFormWithoutJavaScript(t *testing.T) {
	t.Parallel()
	b := open(t, 390, 800)
	b.run(emulation.SetScriptExecutionDisabled(true), chromedp.Navigate(b.url+"/"))
	if got := b.text("main"); strings.Contains(got, "Make it worse") || !strings.Contains(got, "need JavaScript") {
		t.Errorf("the page without JavaScript: %s", got)
	}
	b.run(chromedp.DoubleClick("form button", chromedp.ByQuery), chromedp.WaitVisible(`a[href="/#form"]`, chromedp.ByQuery))
	if got := b.text("h1"); got != "Thank you" {
		t.Errorf("after a double click: %s", got)
	}
	b.run(chromedp.Navigate(b.url+"/"), chromedp.WaitVisible(".placed", chromedp.ByQuery))
	if got := strings.TrimSpace(b.text(".placed")); got != "1 × coffee" {
		t.Errorf("placed: got %q, want one order of one coffee", got)
	}
}
