// Package onceguard is the front page of a module that makes an HTTP API safe against double submission. A user
// double-clicks, a phone loses its connection and sends again, a proxy repeats: the payment happens once, and every
// repetition gets the same response.
//
// It has no code. This is a protected route of a ServeMux; that of chi is r.With(once).Post("/payments", pay):
//
//	client := redis.NewClient(&redis.Options{Addr: addr})
//	locker := lock.New(client, "payments-api") // the namespace: one per service
//	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
//		middleware.WithRequired(),           // a payment without a key is 400
//		middleware.WithAtMostOnce(),         // do not run again what may have happened (for 24 h)
//		middleware.WithWait(10*time.Second), // a second click waits for the first one's response
//	)
//	mux.Handle("POST /payments", once(http.HandlerFunc(pay)))
//
// The Example is a whole program.
//
// # Which package
//
//   - [github.com/onceguard/onceguard/middleware] is the HTTP part, and where to begin.
//   - [github.com/onceguard/onceguard/once] is the same for functions: messages, jobs, tools of agents.
//   - [github.com/onceguard/onceguard/keyfunc] says who asks for what: how a key is made of a request.
//   - [github.com/onceguard/onceguard/lock] has the leases on Redis keys below it, which can be used on their own.
//   - [github.com/onceguard/onceguard/journal] says what a database beside Redis must do.
//   - [github.com/onceguard/onceguard/sqljournal] is a module of its own: a journal in the database that has the effect.
//     Then nothing runs twice even if Redis forgets, and the effect and its response are committed together.
//   - [github.com/onceguard/onceguard/onceclient] is for clients: it makes keys and retries.
//
// More modules of the repository: contrib/promonce and contrib/otelonce, metrics and traces; contrib/ginonce,
// contrib/echoonce and contrib/echo5once for frameworks whose handlers do not answer on an http.ResponseWriter;
// contrib/grpconce for grpc-go.
//
// # Which mode
//
// By default a request whose outcome is unknown, because its process died, runs again after 10 s. With
// [github.com/onceguard/onceguard/middleware.WithAtMostOnce] it does not for 24 h; with
// [github.com/onceguard/onceguard/middleware.WithJournal] your database decides. Redis alone cannot promise exactly
// once: docs/guarantees.md in the repository says what each fault leads to in each mode, with its test. The README has
// a table of the modes and a list of all pages.
package onceguard
