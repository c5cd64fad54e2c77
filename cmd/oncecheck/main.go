// Command oncecheck asks an HTTP server, in whatever language, whether it keeps the promise of Idempotency-Key: that a
// request which arrives twice takes effect once.
//
//	oncecheck -H 'Authorization: Bearer ann' -H2 'Authorization: Bearer bob' -d '{"amount":{{n}}}' \
//		-effects 'curl -s http://127.0.0.1:8080/payments | jq length' http://127.0.0.1:8080/payments
//
// It sends one request again and again: repeated, many at one instant, over connections that break, with malformed keys,
// with another body, as another user. It knows nothing of the server but its answers, and counts what really happened.
//
// # The request
//
// -X, -H and -d say what one operation is, as for curl; -d @FILE reads the body from a file. {{n}} is a number that
// differs from operation to operation and is the same in its repetitions, and so are {{uuid}} and {{key}}, the
// idempotency key. {{n}} has six to eight digits and begins elsewhere in each run. They may stand in the URL, in headers and
// in bodies. A body that begins with { or [ is sent as JSON unless -H has a Content-Type. The key goes into
// Idempotency-Key, or the header that -key-header names, in quotes or, if the server refuses that, without; -key says it,
// as in -key 'order-{{key}}': without quotes there, a key is any string, and what concerns structured fields is not asked.
//
// The server must answer the plain request with a success (2xx or 3xx), again and again.
//
// # What tells a second run from a replay
//
// -effects is a command for sh, or a URL, that counts what has happened so far. It prints a number or a JSON array,
// whose length counts, and must go up by one for each operation; nothing else may change it during the run. A URL is
// asked with the headers of -H. Without -effects, oncecheck looks for ids in the responses, which differ from run to
// run. Where that does not suffice, a check is "not asked".
//
// # What else a check may need
//
// Nothing is guessed. What needs one of these flags is "not asked" without it:
//
//	-H2           headers of a second user, in place of those of the same names
//	-slow         a query that makes the server take about a second, such as delay=1s; repeatable, once for a delay before
//	              and once after the effect; without it, only what happens when the server is killed is not asked, and
//	              duplicates of a running request are several sent at once
//	-fail         a query that makes the server fail with a 5xx, or break the connection; repeatable, in the same way
//	-sample       a query whose response is of another kind (binary, empty, 1 MiB, a redirection); repeatable
//	-also         the URL of a second instance of the same service
//	-restart      a command that kills the server and starts it again; it may return before the server listens
//	-store-down   a command that stops what the server keeps its keys in
//	-store-up     a command that starts it again
//
// # Verdicts and exit codes
//
// Each check is a MUST, SHOULD or ADVICE; -list prints them all. A failure of a MUST counts, with -strict also one
// of a SHOULD. -at-most-once makes crash/at-most-once a MUST. -profile acp, ucp or stripe has the statuses of that API's
// rules, makes its demands a MUST, asks what -list says only it asks, and leaves out what it specifies otherwise, such as how a
// key is written. -status and -key win over it, wherever they stand. -expect names a file of known failures, one id a line: the
// run passes if exactly these fail.
//
//	0  all that was asked holds, or exactly the known failures fail
//	1  something else failed, or a known failure did not
//	2  the server could not be asked, or the flags are wrong; the standard error says why
//
// # Bounds
//
// A run sends 1,200 to 1,900 requests, at most 3,000 and -parallel at a time, and never a key that an earlier run has used. It
// creates some 300 operations on the server, 200 of them for load/shuffled, and over 1,000 if the server ignores the key. It
// refuses a host that is neither on this machine nor on a private network, unless -i-may-test-this is given. Of a response it
// reads at most 64 MiB and 1 MiB of header.
//
// # Output
//
// A line for each failure, the gravest first; the numbers; and last the result in a sentence or two, curl lines that show it,
// and what to do next. A failure that does not count is noted. -verbose prints a line for each check, and tells every
// failure in full: what was seen and expected, which text says so, what it means for a customer, and lines for sh that show it
// again, with curl. The values of -H and -H2 and your commands are shell variables there, named after the headers
// and flags, also where a server repeats them; headers such as Content-Type, which everybody may see, are not. -json prints JSON
// instead; -junit and -markdown write files beside it. On a terminal the standard error shows what runs. A run that is
// interrupted prints what it knows, and exits with 2.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], environment{stdout: os.Stdout, stderr: os.Stderr, terminal: isTerminal(os.Stderr)}))
}

// isTerminal reports whether f is a terminal, as far as its mode tells.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
