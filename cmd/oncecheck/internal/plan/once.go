package plan

// once has the checks of a request that is repeated.
func once() []Check {
	charged := "charged twice"
	both := []Need{Effects}
	return []Check{
		{ID: "once/repeat", Level: Must, Title: "a repetition does not run again",
			Asserts: "A request, its answer, the same request: one effect.",
			Texts:   []Reference{Draft26}, Customer: charged, Needs: both},
		{ID: "once/repeat-later", Level: Must, Title: "a repetition after two seconds does not run again",
			Asserts: "A request, its answer, a pause of 2.1 s, the same request: one effect.",
			Texts:   []Reference{Draft26}, Customer: charged, Needs: both},
		{ID: "once/concurrent-2", Level: Must, Title: "two at the same instant have one effect",
			Asserts: "The last byte of both is sent at once; ten rounds: one effect each, and all successes have one body.",
			Texts:   []Reference{Draft26}, Customer: "a double click is charged twice", Needs: both},
		{ID: "once/concurrent-10", Level: Must, Title: "ten at the same instant have one effect",
			Asserts: "As once/concurrent-2, with 10; four rounds.",
			Texts:   []Reference{Draft26}, Customer: "a nervous double click, or a client with several retries, is charged twice", Needs: both},
		{ID: "once/concurrent-50", Level: Must, Title: "fifty at the same instant have one effect",
			Asserts: "As once/concurrent-2, with 50; two rounds.",
			Texts:   []Reference{Draft26}, Customer: "charged several times when a proxy or a queue sends at once what it has collected", Needs: both},
		{ID: "once/instances-repeat", Level: Must, Title: "a repetition on another instance does not run again",
			Asserts: "A request to the first instance, its answer, the same to -also: one effect.",
			Texts:   []Reference{Draft26}, Customer: "charged twice as soon as there is a second instance", Needs: []Need{Effects, Also}},
		{ID: "once/instances-concurrent-2", Level: Must, Title: "two at the same instant on two instances have one effect",
			Asserts: "As once/concurrent-2, one on each instance.",
			Texts:   []Reference{Draft26}, Customer: "a double click through a load balancer is charged twice", Needs: []Need{Effects, Also}},
		{ID: "once/instances-concurrent-10", Level: Must, Title: "ten at the same instant over two instances have one effect",
			Asserts: "As once/concurrent-10, alternating between the instances.",
			Texts:   []Reference{Draft26}, Customer: "a double click through a load balancer is charged twice", Needs: []Need{Effects, Also}},
		{ID: "once/instances-concurrent-50", Level: Must, Title: "fifty at the same instant over two instances have one effect",
			Asserts: "As once/concurrent-50, alternating between the instances.",
			Texts:   []Reference{Draft26}, Customer: "charged several times through a load balancer", Needs: []Need{Effects, Also}},
	}
}

// onceLost has the checks of a request whose way, or whose answer's, is disturbed.
func onceLost() []Check {
	charged := "charged twice"
	both := []Need{Effects}
	return []Check{
		{ID: "once/http2", Level: Must, Title: "over HTTP/2 a repetition does not run again",
			Asserts: "A request over HTTP/1.1, the same over HTTP/2, and ten at once over HTTP/2: one effect each. (Not asked if the server has no HTTP/2.)",
			Texts:   []Reference{Draft26}, Customer: charged, Needs: both},
		{ID: "once/expect-continue", Level: Must, Title: "with Expect: 100-continue a repetition does not run again",
			Asserts: "A request with Expect: 100-continue, whose body follows when asked for or after a second; then the same: a success, and one effect.",
			Texts:   []Reference{Expect}, Customer: charged + ", by curl or Java clients with large bodies", Needs: both},
		{ID: "once/chunked", Level: Must, Title: "a repetition in chunks is the same request",
			Asserts: "A request with Content-Length, the same with Transfer-Encoding: chunked, and the other way round: one effect, and no refusal as another request.",
			Texts:   []Reference{MessageBody}, Customer: "charged twice, or refused, when a proxy changes the framing", Needs: both},
		{ID: "once/client-leaves", Level: Must, Title: "the client leaves before the answer, and repeats",
			Asserts: "A request whose connection is closed as soon as its last byte is sent (with -slow while the server works); the same until it is answered: one effect.",
			Texts:   []Reference{Draft26, RetryRequests}, Customer: "charged twice by a phone in a tunnel", Needs: []Need{Counted}},
		{ID: "once/client-leaves-answered", Level: Should, Title: "the client leaves before the answer, repeats, and gets one in the end",
			Asserts: "As above: within -patience an answer that is no in-flight refusal.",
			Texts:   []Reference{Draft26, Draft27}, Customer: "the customer cannot pay for a day: the key says that the request still runs"},
		{ID: "once/answer-lost", Level: Must, Title: "the answer is lost on its way, and the client repeats",
			Asserts: "A proxy takes the whole answer and closes; the same request until it is answered: one effect.",
			Texts:   []Reference{Draft26, RetryRequests}, Customer: "charged twice by a network error", Needs: both},
		{ID: "once/answer-cut-in-head", Level: Must, Title: "the answer is cut in its head, and the client repeats",
			Asserts: "A proxy hands on half of the answer's head and closes; the same request until it is answered: one effect.",
			Texts:   []Reference{Draft26, Incomplete}, Customer: "charged twice by a network error", Needs: both},
		{ID: "once/answer-cut-in-body", Level: Must, Title: "the answer is cut in its body, and the client repeats",
			Asserts: "A proxy hands on the head and half of the body and closes; the same request until it is answered: one effect.",
			Texts:   []Reference{Draft26, Incomplete}, Customer: "charged twice by a network error", Needs: both},
		{ID: "once/request-cut", Level: Must, Title: "the request is cut in its body, and the client repeats it whole",
			Asserts: "A proxy hands on the head and half of the body and closes; the whole request until it is answered: a success, and one effect.",
			Texts:   []Reference{Incomplete}, Customer: "half a request takes the key: the whole one is refused for ever, or charged as well", Needs: []Need{Counted}},
		{ID: "once/sent-twice", Level: Must, Title: "a proxy sends everything twice, one after the other",
			Asserts: "A proxy sends the request, takes the answer, sends the request again and hands on the second answer: one effect.",
			Texts:   []Reference{Draft26}, Customer: "charged twice by a proxy that retries (nginx proxy_next_upstream, Go's http.Transport)", Needs: both},
		{ID: "once/sent-twice-at-once", Level: Must, Title: "a proxy sends everything twice, at the same time",
			Asserts: "A proxy sends the request on two connections, the last bytes at one instant, and hands on the first answer; five rounds: one effect each.",
			Texts:   []Reference{Draft26}, Customer: "charged twice by a proxy that hedges", Needs: both},
		{ID: "once/keys-differ", Level: Must, Title: "the same body under another key is another operation",
			Asserts: "The same body under two keys: both run (two effects, or two ids).",
			Texts:   []Reference{Draft22}, Customer: "the second of two equal orders is never made", Needs: both},
	}
}
