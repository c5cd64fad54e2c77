package browsertest

import (
	_ "embed"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// wcag looks for what breaks WCAG 2.2 AA, as far as a program can see it.
//
//go:embed wcag.js
var wcag string

// The page at the sizes and in the colours that people have.
func TestLook(t *testing.T) {
	t.Parallel()
	for _, size := range []struct {
		name          string
		width, height int64
	}{{"desktop", 1280, 1000}, {"phone", 390, 844}, {"narrow", 320, 640}} {
		for _, colours := range []string{"light", "dark"} {
			name := size.name + "-" + colours
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := open(t)
				b.run(emulation.SetDeviceMetricsOverride(size.width, size.height, 1, size.name != "desktop"))
				if colours == "dark" {
					b.run(dark())
				}
				b.load()
				b.check("before")
				b.try("double")
				b.check("after a double click")
				b.run(chromedp.Evaluate(`scrollTo(0, 0)`, nil))
				b.screenshot(name)
				if size.name == "desktop" { // the picture in the README
					b.run(emulation.SetDeviceMetricsOverride(1120, 640, 2, false))
					b.screenshot("demo-" + colours)
					b.run(emulation.SetDeviceMetricsOverride(size.width, size.height, 1, false))
				}
				b.try("hasty")
				b.check("after a refusal")
				b.run(chromedp.Evaluate(`document.querySelector("#worse").scrollIntoView({behavior: "instant"})`, nil))
				b.screenshot(name + "-below")
			})
		}
	}
}

// check fails the test for everything that wcag.js finds.
func (b *browser) check(when string) {
	b.t.Helper()
	var found []string
	b.eval(fmt.Sprintf("(%s)()", wcag), &found)
	for _, fault := range found {
		b.t.Errorf("%s: %s", when, fault)
	}
}
