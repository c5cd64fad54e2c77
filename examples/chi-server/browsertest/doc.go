// Package browsertest looks at the example's page with a real browser. It is a module of its own, so that nobody who
// uses onceguard downloads what drives a browser.
package browsertest
