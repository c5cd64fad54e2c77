// Command onceguard shows the keys that packages middleware and once keep in Redis, and settles a request or a function
// whose outcome is unknown. No retry can do that.
//
//	onceguard inspect -redis URL KEY
//	onceguard forget  -redis URL -token TOKEN -reason TEXT [-even-if-live] KEY
//	onceguard resolve -redis URL -token TOKEN -reason TEXT -nothing-happened KEY
//	onceguard resolve -redis URL -token TOKEN -reason TEXT -status N [-header 'Name: value'] [-body-file FILE] KEY
//	onceguard resolve -redis URL -token TOKEN -reason TEXT (-value FILE [-raw] | -failed TEXT) KEY
//	onceguard scan    -redis URL -namespace NAME [-status N] [-rate N]
//	onceguard forget  -redis URL -namespace NAME -reason TEXT -list FILE
//
// It reads Redis alone. A service with a journal (middleware.WithJournal) needs the same command with database drivers,
// github.com/onceguard/onceguard/sqljournal/cmd/onceguard: a key that is free here may have an outcome there.
//
// inspect prints what a key holds, in words: free, held (it runs), abandoned (it ended without an outcome, and retries
// get 409 outcome-unknown) or settled (retries get what is stored), and whether its run is an HTTP request's or a
// function's. It shows the status, size and time of a response, never its header and body; only the time of a
// function's result; and the owner of a lock (lock.NewOwnerContext).
//
// forget removes exactly the claim or the stored response that TOKEN names, so that the next try runs. inspect prints
// TOKEN. If the claim's lease has not run out, its process may still be running, and forget refuses unless
// -even-if-live is given. With -list it removes the stored responses of a list, such as scan -status -json prints: one JSON
// object for each, of which it reads key and token. It goes on after a key that is free or was refused, and refuses each
// that has no outcome.
//
// resolve settles an abandoned claim when an operator has found out what happened, for example in the ledger. With
// -nothing-happened it frees the key. Otherwise it stores what every later retry gets: a response (-status, -header,
// -body-file); a function's value (-value, a file with JSON or, with -raw, with the bytes of once.WithCodec); or the
// text of a function's final error (-failed), as once.Final. A file "-" is the standard input. -retention and -keys-file
// must be those of the service. resolve stores no Set-Cookie, and refuses a response for a function, a value for a request, and a run that has a journal, because the
// journal would not learn of it.
//
// scan lists the held and abandoned keys of a namespace, on all masters of a Cluster. It looks at -rate keys a second,
// those of other programs included. With -status it lists the stored responses with such a status instead: 503, or
// 500-599. It then needs -keys-file, if the service has WithEncryption.
//
// # The key
//
// KEY is the key as Redis and logs have it, NAMESPACE:{1b2f}6cbd…; or "urn:onceguard:key:" and 64 digits, as a problem
// response has it in "instance"; or these 64 digits. The last two need -namespace. If the service uses
// keyfunc.Standard or package profile, what the customer sent can be given instead of KEY:
//
//	onceguard inspect -redis URL -namespace payments-api -user ann -method POST -path /payments -key 8e03978e
//
// -user is the user's id as keyfunc.User gets it. For a scope of several parts, such as keyfunc.Compose(tenant, user),
// give -user for each, in that order: -user acme -user ann. -host is the host that the client asked for, for a key of
// keyfunc.Compose(keyfunc.Standard(user), keyfunc.Host()). -anonymous stands for keyfunc.Anonymous. -no-route, instead of
// -method and -path, is for a key of keyfunc.Compose(key, user), as that of profile.Stripe. -key is the content of the
// Idempotency-Key header without quotes: 8e03978e, not "8e03978e". For keyfunc.Opaque, and so for package profile, it is
// as the client sent it. No flag may be empty. The output repeats all of these but -key, because a mistyped one makes another key, which is
// free. Other users of the machine can see the arguments of a process.
//
// inspect and forget take the name of a lock (lock.Locker.Acquire) instead of KEY. While its lease is live, forget
// needs -even-if-live too:
//
//	onceguard inspect -redis URL -namespace reports -lock nightly
//
// # Redis
//
// URL is of one of these forms; without -redis it is taken from REDIS_URL. Its password is never printed.
//
//	redis://[user:password@]host:port[/database]            a server, or the Cluster that it is part of
//	redis://host:port?addr=host2:port&addr=host3:port       a Cluster
//	redis://host:port?master_name=NAME&addr=host2:port      a master behind these Sentinels
//
// With rediss:// the connection uses TLS. Options of the URL for pools, retries and timeouts are ignored. -timeout is the
// time for one operation. An ACL user needs the rights of the service's, and +scan for scan. If it may not send INFO, the
// URL of a Cluster needs at least two addresses.
//
// # The keys file
//
// -keys-file names a file with the keys of middleware.WithEncryption, in the same order: one on each line, 32 bytes in
// base64 (standard or URL alphabet) or 64 hexadecimal digits. What is stored in plaintext is read too. resolve needs it;
// inspect needs it to show what is stored.
//
// # Output, log and exit codes
//
// The result goes to the standard output: for people, or with -json as one line of JSON for each key. Characters that
// cannot be printed are written as \uXXXX in both. Later versions only add fields. Fields that end in _ms are in
// milliseconds; a ttl_ms below 0 means that the key never expires.
//
// A command that changes something requires -reason. It logs a line to the standard error, with the user of this
// process, the reason, the key, the token, the state before and the result.
//
//	0  done
//	1  failed: Redis did not answer, or answered with an error, or the output is lost; the change may have been made,
//	   or may still be made for the time of -timeout
//	2  wrong usage: flags, the key's form, an outcome that the run cannot have; nothing was changed
//	3  the key is free: Redis has nothing under it
//	4  refused, nothing was changed: the key has changed since, its lease has not run out, it has its outcome, another
//	   program wrote it, it is unreadable without the right -keys-file, or its run has a journal
package main

import (
	"os"

	"github.com/onceguard/onceguard/internal/operate"
)

func main() { os.Exit(operate.Main(nil)) }
