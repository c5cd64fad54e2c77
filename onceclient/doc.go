// Package onceclient has an http.RoundTripper that repeats a POST or PATCH until its outcome is known, always with the
// same idempotency key, so that it takes effect once. It is for servers that honor such a key, for example with
// onceguard's middleware.
//
//	client := &http.Client{Transport: onceclient.New(nil)}
//
//	key := onceclient.NewKey()
//	// Store key beside the order, before the first try: after a crash it is the only way to ask again.
//	req, err := http.NewRequestWithContext(onceclient.WithKey(ctx, key), http.MethodPost, url, bytes.NewReader(order))
//	...
//	resp, err := client.Do(req)
//
// # Which servers
//
// Do not use it with a server that ignores the key: the Transport repeats a POST after a lost response, and that server
// would process the request twice.
//
// # The key
//
// A request that already has the header Idempotency-Key keeps it; if that is empty, RoundTrip returns [ErrInvalidKey].
// Otherwise the key is that of [WithKey], or else a new one from [NewKey]. A new one protects against lost responses
// only while RoundTrip runs. To send the request again after an error, a crash or a restart, make the key yourself and
// store it first. A key stands for one intent, such as one order: use it for each repetition of that intent, and never
// for another.
//
// A redirect that keeps the method (307 and 308) keeps the key.
//
// # What is repeated
//
// Every try sends the same bytes under the same key. Responses below 400 are returned. From 400 on, X-Should-Retry
// decides if it is "true" or "false". Without it:
//
//	no response (network error, timeout of a try)   repeated
//	a response whose body breaks off                repeated
//	a response with Idempotent-Replayed: true       returned: it is the stored outcome
//	409 with a problem document of type in-flight   repeated
//	408, 425, 429, 502, 503, 504, 520 to 524        repeated
//	500                                             repeated, unless the problem is record-unreadable or key-failed
//	every other status, every other 409             returned
//
// An error that a repetition cannot cure is returned: an unsupported scheme, a URL without a host, an invalid header,
// an untrusted certificate.
//
// A 4xx after a try without a response may come from something in front of the server, such as a gateway or a login.
// The earlier try may still have taken effect: keep the key until you know.
//
// The pause before a repetition is random between 0 and a bound that doubles with each try (full jitter), see
// [WithBackoff]. After a Retry-After, in seconds or as a date (RFC 9110 section 10.2.3), the pause is that time plus
// the jitter. One of more than 15 s is cut, except with an outcome-unknown, and no pause goes past the limit.
//
// # When it ends
//
// RoundTrip gives up after a time, see [WithLimit], and not after a number of tries: if the process that handled the
// request dies, the key stays taken until its lease has run out, by default for 10 s, however often a client asks. The
// default limit is longer than a run and a lease together on a server with default settings. The request's context can
// end RoundTrip earlier: at once if it is cancelled, and shortly before its deadline, to leave time for returning the
// error.
//
// The error is then a [*GaveUpError]: the request may have taken effect, and may still do so. If no try got a connection,
// the error is another one: nothing was sent. A 409 outcome-unknown is
// a response, see [ProblemType]. If it has X-Should-Retry: true, the server may still find out: it is repeated after its
// Retry-After of 30 s to 5 minutes, and at the limit, if that is earlier, for the last time. To wait for such an outcome
// set a limit of some minutes, or send the request again later with the same key.
//
// # Bodies
//
// A request body is sent again by Request.GetBody, which http.NewRequest sets for bytes.Buffer, bytes.Reader and
// strings.Reader. Without GetBody, RoundTrip first reads the body into memory, up to [WithMaxBody]. It sends a longer
// body only once, with the key, and returns any response; a network error is then a GaveUpError. If you can produce the
// same bytes again, set GetBody, or send the request again with the same key.
//
// The body of a response is read into memory within the try, up to 1 MiB. What is longer is streamed: all of it if its
// Content-Length says so, and otherwise what follows. So are text/event-stream and the response to a request that is sent only once. If such a body breaks off, send the
// request again with the same key to get the stored response.
//
// # What belongs where
//
// The Transport is what [New] returns. It calls the base once for each try. Put into the base what must be fresh for each try,
// such as an access token, a signature or a span, and around the Transport what belongs to the whole operation. Do not put another
// retrying client around it or below it: the tries would multiply. http.Transport itself repeats a keyed request on
// another connection if a reused one breaks before the response. That is within one try.
//
// http.Client.Timeout bounds everything, including the reading of the response body. Leave it at 0, or make it longer
// than WithLimit. Expect: 100-continue, informational responses (httptrace), trailers of the request, HTTP/2 and
// proxies work as with the base.
package onceclient
