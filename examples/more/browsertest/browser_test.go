package browsertest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience bounds every wait. Only a failing test waits this long.
const patience = 60 * time.Second

var program, chromium string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

// testMain builds the example once.
func testMain(m *testing.M) int {
	chromium, _ = exec.LookPath("chromium")
	dir, err := os.MkdirTemp("", "browsertest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "chi-server")
	build := exec.Command("go", "build", "-o", program, "./examples/chi-server")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %s", err, out)
		return 1
	}
	return m.Run()
}

// start runs the example on a port of its own, and returns its address.
func start(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, append([]string{"-addr", "127.0.0.1:0", "-op-timeout", "20s"}, args...)...)
	cmd.Env = append(os.Environ(), "REDIS_URL=")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		listening := regexp.MustCompile(`msg=listening addr=(\S+)`)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if found := listening.FindStringSubmatch(lines.Text()); found != nil {
				address <- found[1]
			}
		}
	}()
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("the example: %v", err)
		}
	})
	select {
	case a := <-address:
		return "http://" + a
	case <-time.After(patience):
		t.Fatal("the example does not listen")
		return ""
	}
}

// browser is one tab of a Chromium of its own.
type browser struct {
	t   *testing.T
	ctx context.Context
	url string
}

// open starts the example, and a browser for it.
func open(t *testing.T) *browser {
	t.Helper()
	needChromium(t)
	return openAt(t, start(t))
}

// needChromium skips the test without Chromium, and fails it in CI.
func needChromium(t *testing.T) {
	t.Helper()
	if chromium != "" {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("chromium is not installed")
	}
	t.Skip("chromium is not installed")
}

// openAt starts a browser for the example at the URL. Anything that the page logs as an error, a violation of its
// Content-Security-Policy for one, fails the test.
func openAt(t *testing.T, url string) *browser {
	t.Helper()
	b := &browser{t: t, url: url}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.WSURLReadTimeout(patience))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses to sandbox itself as root
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	b.ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	chromedp.ListenTarget(b.ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("exception: %v", e.ExceptionDetails)
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError && e.Entry.Source != log.SourceNetwork { // a 409 is not a fault of the page
				t.Errorf("the browser's log: %s", e.Entry.Text)
			}
		}
	})
	b.run(emulation.SetDeviceMetricsOverride(1280, 900, 1, false))
	return b
}

func (b *browser) run(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// load loads the page and waits for its first event.
func (b *browser) load() {
	b.t.Helper()
	b.run(chromedp.Navigate(b.url + "/"))
	b.await(`document.body.dataset.events === "on"`)
}

// await waits until an expression in JavaScript is true.
func (b *browser) await(expression string) {
	b.t.Helper()
	b.run(chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(patience), chromedp.WithPollingInterval(20*time.Millisecond)))
}

// eval sets v to the value of an expression in JavaScript.
func (b *browser) eval(expression string, v any) {
	b.t.Helper()
	b.run(chromedp.Evaluate(expression, v))
}

func (b *browser) text(selector string) (text string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("document.querySelector(%q).innerText", selector), &text)
	return text
}

// try presses the button of an experiment, and waits until it is over.
func (b *browser) try(name string) {
	b.t.Helper()
	b.run(chromedp.Click(`[data-try="`+name+`"]`, chromedp.ByQuery))
	b.await(fmt.Sprintf("document.body.dataset.done === %q", name))
}

// orders returns the counters of both shops.
func (b *browser) orders() string {
	b.t.Helper()
	return b.text(`[data-lane=unprotected] .orders`) + " " + b.text(`[data-lane=unprotected] .euros`) + " / " +
		b.text(`[data-lane=protected] .orders`) + " " + b.text(`[data-lane=protected] .euros`)
}

// stories returns what the right shop's requests came to, the newest order first.
func (b *browser) stories(lane string) (list []string) {
	b.t.Helper()
	b.eval(`[...document.querySelectorAll("[data-lane=`+lane+`] .requests .what")].map(e => e.innerText)`, &list)
	return list
}

// screenshot writes a picture of the window into the folder that ONCEGUARD_SCREENSHOTS names, if there is one.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	folder := os.Getenv("ONCEGUARD_SCREENSHOTS")
	if folder == "" {
		return
	}
	var png []byte
	b.run(chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(folder, name+".png"), png, 0o666); err != nil {
		b.t.Fatal(err)
	}
}

func dark() chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}})
}

func asJSON(v any) string {
	data, _ := json.Marshal(v)
	return strings.TrimSpace(string(data))
}
