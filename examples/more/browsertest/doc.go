// Package browsertest looks at the page of examples/chi-server with a real browser. It is in this module so that users of
// onceguard do not download what drives a browser.
package browsertest
