// Package capture provides the ResponseWriter that buffers a handler's response until the middleware has stored it.
//
// A [Writer] knows neither keys nor Redis. The goroutine that serves the request calls, in this order:
//
//	Begin      before the handler
//	Finish     when the handler has returned; the Verdict is how much of the response can be stored
//	Deliver    when the key is settled: sends what has not been sent
//
// It calls Withdraw instead of Deliver if the client gets another response, and Abort if the handler panics or calls
// runtime.Goexit.
//
// What the handler writes goes to memory. Except for 1xx statuses, the client gets nothing before Deliver, unless a
// Flush, a Hijack, or a body longer than the limit starts sending. From then on what the handler writes goes to the
// client, and also to memory while the body fits. After Finish and Abort the handler's calls return ErrReturned. The
// table of the type state (writer.go) has all transitions.
//
//	writer.go            the Writer and its state
//	gate.go              lets one goroutine at a time into the Writer
//	handler.go, conn.go  what the handler calls
//	send.go              sends the response to the underlying writer
//	finish.go            what the serving goroutine calls
//	part.go              undoes or ends a response before the handler has returned
//
// # Transactions
//
// A handler may roll back a part of its work, and with it whatever it wrote during that part. BeginPart begins such a part,
// in which nothing is sent. SetAside encodes the response and puts it aside, in case the part is run again. Committed and
// Rewind end the part. Committed takes the response that was set aside, and later writes fail with [journal.ErrAnswered].
// Rewind restores the response as it was at BeginPart. Freeze makes later writes fail, too, for a response that will be
// withdrawn.
//
// # Goroutines that the handler leaves behind
//
// net/http reuses its own writer's memory and its connection for other requests. So Finish and Abort cut off
// every goroutine that still has the Writer. They cannot protect the map of Header, which is net/http's own. A
// SetReadDeadline, SetWriteDeadline, EnableFullDuplex or Push that has already begun may still take effect.
//
// When Finish or Abort is called, a goroutine may be in a call to the underlying writer. The call lasts for as long as
// the client reads nothing. Finish does not wait for it, because the key must be settled first. When the call returns,
// the goroutine changes nothing in the Writer and does not call the underlying writer again. Deliver and Withdraw wait
// for the call before they write. Abort does not wait: the call is then as dangerous as one on net/http's writer.
package capture
