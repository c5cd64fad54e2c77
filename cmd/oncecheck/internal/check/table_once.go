package check

// onceChecks has the checks of a request that is repeated.
func onceChecks() []Check {
	charged := "charged twice"
	both := []Need{Effects}
	return []Check{
		{ID: "once/repeat", Level: Must, Title: "a repetition does not run again",
			Asserts: "A request, its answer, the same request: one effect.",
			Texts:   []Reference{Draft26}, Customer: charged, Needs: both, ask: onceRepeat},
		{ID: "once/repeat-later", Level: Must, Title: "a repetition after two seconds does not run again",
			Asserts: "A request, its answer, a pause of 2.1 s, the same request: one effect.",
			Texts:   []Reference{Draft26}, Customer: charged, Needs: both, ask: onceRepeatLater},
		{ID: "once/concurrent", Level: Must, Title: "requests at the same instant have one effect", Aliases: []string{"once/concurrent-2", "once/concurrent-10", "once/concurrent-50"},
			Asserts: "The last bytes of two are sent at once, ten times; those of ten, four times; those of fifty, twice: one effect each, and all successes have one body.",
			Texts:   []Reference{Draft26}, Customer: "a double click is charged twice", Needs: both, ask: concurrent(false)},
		{ID: "once/instances-repeat", Level: Must, Title: "a repetition on another instance does not run again",
			Asserts: "A request to the first instance, its answer, the same to -also: one effect.",
			Texts:   []Reference{Draft26}, Customer: "charged twice as soon as there is a second instance", Needs: []Need{Effects, Also}, ask: onceInstancesRepeat},
		{ID: "once/instances-concurrent", Level: Must, Title: "requests at the same instant on two instances have one effect", Aliases: []string{"once/instances-concurrent-2", "once/instances-concurrent-10", "once/instances-concurrent-50"},
			Asserts: "As once/concurrent, alternating between the instances.",
			Texts:   []Reference{Draft26}, Customer: "a double click through a load balancer is charged twice", Needs: []Need{Effects, Also}, ask: concurrent(true)},
	}
}

// onceLostChecks has the checks of a request whose way, or whose answer's, is disturbed.
func onceLostChecks() []Check {
	charged := "charged twice"
	both := []Need{Effects}
	return []Check{
		{ID: "once/http2", Level: Must, Title: "over HTTP/2 a repetition does not run again",
			Asserts: "A request over HTTP/1.1, the same over HTTP/2, and ten at once over HTTP/2: one effect each. (Not asked if the server has no HTTP/2.)",
			Texts:   []Reference{Draft26}, Customer: charged, Needs: both, ask: onceHTTP2},
		{ID: "once/expect-continue", Level: Must, Title: "with Expect: 100-continue a repetition does not run again",
			Asserts: "A request with Expect: 100-continue, whose body follows when asked for or after a second; then the same: a success, and one effect.",
			Texts:   []Reference{Expect}, Customer: charged + ", by curl or Java clients with large bodies", Needs: both, ask: onceExpectContinue},
		{ID: "once/chunked", Level: Must, Title: "a repetition in chunks is the same request",
			Asserts: "A request with Content-Length, the same with Transfer-Encoding: chunked, and the other way round: one effect, and no refusal as another request.",
			Texts:   []Reference{MessageBody}, Customer: "charged twice, or refused, when a proxy changes the framing", Needs: both, ask: onceChunked},
		{ID: "once/client-leaves", Level: Must, Title: "the client leaves before the answer, and repeats",
			Asserts: "A request whose connection is closed as soon as its last byte is sent (with -slow while the server works); the same until it is answered: one effect.",
			Texts:   []Reference{Draft26, RetryRequests}, Customer: "charged twice by a phone in a tunnel", Needs: []Need{Counted}, ask: onceClientLeaves},
		{ID: "once/client-leaves-answered", Level: Should, Title: "the client leaves before the answer, repeats, and gets one in the end",
			Asserts: "As above: within -patience an answer that is no in-flight refusal.",
			Texts:   []Reference{Draft26, Draft27}, Customer: "the customer cannot pay for a day: the key says that the request still runs", ask: onceClientLeavesAnswered},
		{ID: "once/answer-lost", Level: Must, Title: "the answer is lost or cut on its way, and the client repeats", Aliases: []string{"once/answer-cut-in-head", "once/answer-cut-in-body"},
			Asserts: "A request whose answer is thrown away, and (with -effects) one whose connection is closed at the first byte of its answer. Then the same until it is answered: one effect each.",
			Texts:   []Reference{Draft26, RetryRequests, Incomplete}, Customer: "charged twice by a network error", Needs: both, ask: onceAnswerLost},
		{ID: "once/request-cut", Level: Must, Title: "the request is cut in its body, and the client repeats it whole",
			Asserts: "The head and half of the body, and the connection ends; the whole request until it is answered: a success, and one effect.",
			Texts:   []Reference{Incomplete}, Customer: "half a request takes the key: the whole one is refused for ever, or charged as well", Needs: []Need{Counted}, ask: onceRequestCut},
		{ID: "once/sent-twice", Level: Must, Title: "a proxy sends everything twice, one after the other",
			Asserts: "The request, its answer and the request again, as a proxy that retries sends them; then the same until it is answered: one effect.",
			Texts:   []Reference{Draft26}, Customer: "charged twice by a proxy that retries (nginx proxy_next_upstream, Go's http.Transport)", Needs: both, ask: onceSentTwice},
		{ID: "once/sent-twice-at-once", Level: Must, Title: "a proxy sends everything twice, at the same time",
			Asserts: "The request on two connections, the last bytes at one instant, as a proxy that hedges sends it; then the same until it is answered; five rounds: one effect each.",
			Texts:   []Reference{Draft26}, Customer: "charged twice by a proxy that hedges", Needs: both, ask: onceSentTwiceAtOnce},
		{ID: "once/samples", Level: Must, Title: "the request with each -sample does not run again",
			Asserts: "The request with each -sample, its answer, the same again: one effect each. (Not asked if one is no success.)",
			Texts:   []Reference{Draft26}, Customer: charged + " where the response is large, empty or of another kind", Needs: []Need{Samples, Effects}, ask: onceSamples},
		{ID: "once/keys-differ", Level: Must, Title: "the same body under another key is another operation",
			Asserts: "The same body under two keys: both run (two effects, or two ids).",
			Texts:   []Reference{Draft22}, Customer: "the second of two equal orders is never made", Needs: both, ask: onceKeysDiffer},
	}
}
