// Command onceguard looks at the keys that package middleware keeps in Redis, and settles what no retry can: a request
// whose outcome is unknown.
//
//	onceguard inspect -redis URL KEY
//	onceguard forget  -redis URL -token TOKEN -reason TEXT [-even-if-live] KEY
//	onceguard resolve -redis URL -token TOKEN -reason TEXT -nothing-happened KEY
//	onceguard resolve -redis URL -token TOKEN -reason TEXT -status N [-header 'Name: value'] [-body-file FILE] KEY
//	onceguard scan    -redis URL -namespace NAME [-rate N]
//
// inspect says what a key holds, in words: free, held (a request runs), abandoned (it ended without an outcome, and
// retries get 409 outcome-unknown) or settled (retries get the stored response). It never shows what is stored.
//
// forget removes exactly the claim or the stored response that TOKEN names, as inspect has printed it, so that the next
// try runs the request again. It refuses one whose lease has not run out, since its process may be at work; with
// -even-if-live it does not.
//
// resolve settles an abandoned claim with the word of an operator who has looked into the ledger: -nothing-happened
// frees the key, and a response, given by -status, -header and -body-file ("-" is the standard input), is what every
// retry gets from then on. The options of the middleware that decide how a response is stored are flags here, and must
// be the same: -keys-file, -plaintext-reads, -compression, -retention, -max-response, -cookies.
//
// scan lists the held and abandoned keys of a namespace, on all masters of a Cluster. It looks at -rate keys a second,
// of any program, and shows its progress if the standard error is a terminal.
//
// # The key
//
// KEY is the key as it stands in Redis and in logs, NAMESPACE:{1b2f}6cbd…; or "urn:onceguard:key:" and 64 digits, as a
// problem response has it in "instance"; or these 64 digits. The last two need -namespace. Instead of KEY, what the
// customer sent may be given, if the keys are those of keyfunc.Standard:
//
//	onceguard inspect -redis URL -namespace payments-api -user ann -method POST -path /payments -key 8e03978e
//
// -user is the user's id as keyfunc.User gets it; -anonymous stands for keyfunc.Anonymous. -key is the content of the
// Idempotency-Key header, without quotes. Other users of the machine can see the arguments of a process.
//
// # Redis
//
// URL is of one of these forms; without -redis it is taken from REDIS_URL. Its password is never printed.
//
//	redis://[user:password@]host:port[/database]            a server; if it is of a Cluster, the Cluster
//	redis://host:port?addr=host2:port&addr=host3:port       a Cluster
//	redis://host:port?master_name=NAME&addr=host2:port      a master behind Sentinels, and these are the Sentinels
//
// With rediss:// the connection uses TLS. -timeout is for one operation. -replicas makes a change count only once so
// many replicas have it, as lock.WithReplicas does. An ACL user needs what the middleware's needs, and for scan +scan
// as well. One that may not send INFO has to give two addresses of a Cluster.
//
// # The keys file
//
// -keys-file names a file with the keys of middleware.WithEncryption, in the same order: one on each line, 32 bytes in
// base64 (standard or URL alphabet) or 64 hexadecimal digits. Empty lines and lines that begin with # are ignored. Only
// resolve needs it.
//
// # Journals
//
// This command has no database driver, so it cannot ask a journal (middleware.WithJournal). It refuses to resolve the
// run of a middleware that has one: call middleware.Resolve with the journal, or the journal's Sweep, in a program of
// your own. To forget such a key is harmless and changes little: the journal still knows the outcome, and has the last
// word.
//
// # Output, log and exit codes
//
// The result is on the standard output, for people, or with -json as one line of JSON for each key. Fields are only
// added. Times left are in milliseconds; a ttl_ms below 0 means that the key never expires.
//
// Where something is changed, -reason is required, and the standard error gets a log line with the user of this
// process, the reason, the key, the token, the state before and the result.
//
//	0  done
//	1  failed: Redis did not answer, or answered with an error; a change may have been made or not
//	2  wrong usage: flags, the key's form, a response that no run can have; nothing was sent or changed
//	3  the key is free
//	4  refused: the key has changed since, its lease has not run out, it holds what onceguard did not write, what it
//	   holds is unreadable without its keys, or its run has a journal; nothing was changed
package main

import (
	"context"
	"os"
	"os/signal"
	"os/user"
	"syscall"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	redis.SetLogger(silent{})
	os.Exit(run(ctx, os.Args[1:], environment{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		terminal: isTerminal(os.Stderr), getenv: os.Getenv, user: osUser(),
	}))
}

// silent is the logger of go-redis: what it logs is in the errors too, and its text may have addresses in the middle of
// the output.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// isTerminal reports whether f is a terminal, as far as its mode tells.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// osUser returns the name of the user who runs this process.
func osUser() string {
	u, err := user.Current()
	if err != nil {
		return "unknown"
	}
	if before := os.Getenv("SUDO_USER"); before != "" {
		return u.Username + ", by sudo from " + before
	}
	return u.Username
}
