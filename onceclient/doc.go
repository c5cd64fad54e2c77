// Package onceclient is an http.RoundTripper that sends a POST or PATCH until its outcome is known, and lets it take
// effect once. It is for servers that honour an idempotency key, such as those that use onceguard's middleware.
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
// Do not use it with a server that ignores the key. It repeats a POST after a lost response, and such a server would then
// process the request twice.
//
// # The key
//
// A request that already has the header Idempotency-Key keeps it; if that is empty, RoundTrip returns [ErrInvalidKey].
// Otherwise the key is the one of [WithKey], or else a new one from [NewKey]. A new one protects against lost responses
// while RoundTrip runs, and no longer: a caller that wants to send the request again after an error, a crash or a restart
// makes the key itself and stores it first. A key stands for one intent, such as one order: it is used again for each
// repetition of that intent, and never for another.
//
// A redirect that keeps the method (307 and 308) keeps the key.
//
// # What is repeated
//
// Every try sends the same bytes under the same key. Responses below 400 are returned. From 400 on, X-Should-Retry
// decides if it is "true" or "false". Without it:
//
//	no response (network error, timeout of a try)   repeated
//	a response with Idempotent-Replayed: true       returned: it is the stored outcome
//	409 with a problem document of type in-flight   repeated
//	408, 425, 429, 502, 503, 504, 520 to 524        repeated
//	500                                             repeated, unless the problem is record-unreadable or key-failed
//	every other status, every other 409             returned
//
// An error that a repetition cannot cure is returned: an unsupported scheme, a URL without a host, an invalid header, an
// untrusted certificate.
//
// A 4xx that is returned after a try without a response may come from something in front of the server, such as a
// gateway or a login. The earlier try may have taken effect all the same: keep the key until that is known.
//
// The pause before a repetition is random between 0 and a bound that doubles with each try (full jitter), see
// [WithBackoff]. Retry-After, in seconds or as a date (RFC 9110 section 10.2.3), is waited for in full and jitter is added
// to it; a very long one is cut, see [WithMaxRetryAfter].
//
// # When it ends
//
// It ends by time and not by the number of tries, see [WithLimit]: a process that died while it handled the request
// leaves a key that is taken until its lease has run out, which is 10 s by default, however often a client asks. The
// default limit is longer than a run and a lease of a server with default settings together. The request's context ends it
// earlier: at once if it is cancelled, and a moment before its deadline, so that there is time left to return the error.
//
// The error is then a [*GaveUpError]: the request may have taken effect, and may still do so. A 409 outcome-unknown is a
// response, see [ProblemType].
//
// # Bodies
//
// A request body is sent again by Request.GetBody, which http.NewRequest sets for bytes.Buffer, bytes.Reader and
// strings.Reader. A body without it is read into memory first, up to [WithMaxBody]. A longer one is sent once, under the
// key: its response is returned whatever it says, and a network error is a GaveUpError. A caller that can
// produce the same bytes again sends it anew with the same key, or sets GetBody.
//
// A response body is not part of a try, except for the first 64 KiB of a response that may have to be repeated. If the
// body of the final response breaks off, RoundTrip has returned already: send the request again with the same key, and the
// stored response comes once more.
//
// # What belongs where
//
// RoundTrip calls the base once for each try. What must be fresh for each try, such as an access token, a signature or a
// span, belongs into the base; what stands for the whole operation belongs around the [Transport]. Do not put another
// retrying client around it or below it: the tries would multiply. http.Transport itself repeats a keyed request on
// another connection if a reused one breaks before the response; that is within one try.
//
// http.Client.Timeout bounds the whole, the reading of the response body included. Leave it at 0, or make it longer than
// WithLimit. Expect: 100-continue, informational responses (httptrace), trailers of the request, HTTP/2 and proxies work
// as with the base.
package onceclient
