// Package capture has the ResponseWriter that holds a handler's response back until the middleware has stored it.
//
// A [Writer] does not know keys or Redis. The goroutine that serves the request calls, in this order:
//
//	Begin      before the handler
//	Seal       when the handler has returned; the Verdict tells how much of its response there is
//	Deliver    when the key is settled: sends what has not been sent
//
// Withdraw takes Deliver's place when another response goes out, and Abort takes the place of all that follows Begin when
// the handler panics or calls runtime.Goexit.
//
//	after                           the handler and its goroutines      the client has             Writer.state
//	Begin                           write to memory                     nothing                    unsent
//	a Flush, a Hijack, or a body    write to memory as far as there is  all that was written       headerSent, then sent
//	longer than the limit           room, and to the client
//	Seal, Abort                     get ErrReturned                     what it had                as it was
//	Deliver                         get ErrReturned                     all that the Writer has    sent
//
// writer.go has the Writer and the gate that lets one goroutine in at a time, handler.go and conn.go what the handler
// calls, send.go what is given to the underlying writer, seal.go what the serving goroutine calls, mark.go what
// undoes or ends a response while its handler goes on, and tee.go and tee_writer.go the Tee.
//
// A [Tee] holds nothing back: it only takes down what a response was.
//
// # Transactions
//
// A handler may have a part of its work, and what it writes meanwhile, undone. Mark begins such a part, in which
// nothing is sent. Rewind ends it and puts the response back as it was at Mark. Fix ends it, too, and makes the
// response final: what is written after it is refused with [ErrAnswered]. Refuse does that to a response that is not
// going to be sent.
//
// # Goroutines that the handler leaves behind
//
// The memory of a Writer, like that of net/http's own writer, is used again for other requests, so Seal and Abort cut
// off every goroutine that still has the Writer, except from the map of Header, which is net/http's own. A
// SetReadDeadline, SetWriteDeadline, EnableFullDuplex or Push that has begun by then may still take effect. A goroutine
// may be inside a call to the underlying writer at that moment, for as long as its client reads nothing. Seal does not
// wait for it, because the key must be settled all the same. When that call comes back, the goroutine changes nothing
// in the Writer and does not call the underlying writer again. Deliver and Withdraw wait for it before they write. Abort does
// not wait: that call is as dangerous then as on net/http's writer.
package capture
