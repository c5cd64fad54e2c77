package check

// replayChecks has the checks that compare the first response with its replay. They look at the plain request, and at the
// requests that -sample adds.
func replayChecks() []Check {
	const pairs = "For the request, and for the request with each -sample: "
	wrong := "the client takes a wrong answer for the outcome of its payment"
	return []Check{
		{ID: "replay/answered", Level: Should, Title: "a repetition is answered with the first's response",
			Asserts: pairs + "the repetition is a success itself, not a refusal. While it is refused as in flight it is repeated, and a response of 1 MiB or more may be refused.",
			Texts:   []Reference{Draft26, Stripe}, Customer: "the client never learns the outcome of the payment whose answer was lost", ask: replayAnswered},
		{ID: "replay/status", Level: Must, Title: "a replay has the first's status",
			Asserts: pairs + "if the repetition is a success, its status is that of the first (201 stays 201, 303 stays 303).",
			Texts:   []Reference{Draft26, Stripe}, Customer: wrong, ask: replayStatus},
		{ID: "replay/body", Level: Must, Title: "a replay has the first's body, byte for byte",
			Asserts: pairs + "if the repetition is a success, its body is that of the first. For the text bodies; the three rows below have the others.",
			Texts:   []Reference{Draft26, Stripe}, Customer: wrong, ask: replayBody(noReplay, isText)},
		{ID: "replay/body-binary", Level: Must, Title: "a binary body is replayed byte for byte",
			Asserts: "As replay/body, for bodies that are not UTF-8. (Not asked if no -sample has one.)",
			Texts:   []Reference{Draft26}, Customer: "a damaged PDF or image", ask: replayBody("no body was binary"+noSample, isBinary)},
		{ID: "replay/body-empty", Level: Must, Title: "an empty body is replayed as an empty one",
			Asserts: "As replay/body, for empty bodies. (Not asked if no -sample has one.)",
			Texts:   []Reference{Draft26}, Customer: wrong, ask: replayBody("no body was empty"+noSample, isEmpty)},
		{ID: "replay/body-large", Level: Must, Title: "a body of 1 MiB and more is not replayed in part",
			Asserts: "As replay/body, for bodies of at least 1 MiB; a refusal is allowed, another body is not. (Not asked if no -sample has one.)",
			Texts:   []Reference{Draft26}, Customer: "the client gets half a response and takes it for the whole one", ask: replayBody("no body had 1 MiB"+noSample, isLarge)},
		{ID: "replay/redirect", Level: Must, Title: "a redirection is replayed with its Location",
			Asserts: "As replay/status, for 3xx: the status and the Location are the first's. (Not asked if no -sample has one.)",
			Texts:   []Reference{LocationField}, Customer: "the second click of a double click ends on another page", ask: replayRedirect},
		{ID: "replay/location", Level: Must, Title: "a replay has the first's Location",
			Asserts: pairs + "the repetition has the Location of the first. (Not asked if the first has none.)",
			Texts:   []Reference{LocationField}, Customer: "the client cannot find what it has bought", ask: replayField("Location", "no response has a Location"+noSample, hasLocation)},
		{ID: "replay/content-type", Level: Must, Title: "a replay has the first's Content-Type",
			Asserts: pairs + "the repetition has the Content-Type of the first, or none if that has none. (For responses with a body.)",
			Texts:   []Reference{Draft26}, Customer: "the client cannot read the answer", ask: replayField("Content-Type", "no repetition of a response with a body was a success", hasBody)},
	}
}

// replayHeadersChecks has the checks of the rest of a replay.
func replayHeadersChecks() []Check {
	const pairs = "For the request, and for the request with each -sample: "
	return []Check{
		{ID: "replay/headers", Level: Should, Title: "a replay has the first's headers",
			Asserts: pairs + "each header of the first is in the repetition, but those of the connection, Date, Age, Set-Cookie and such that name the exchange (request ids, traces, rate limits); ETag, Last-Modified, Link, Content-Language, Content-Disposition, Content-Location and Allow have the same value.",
			Texts:   []Reference{Draft26}, Customer: "what the client reads from a header (a link, an ETag) is missing after a retry", ask: replayHeaders},
		{ID: "replay/headers-multiple", Level: Should, Title: "a header that occurs several times is replayed as often, in order",
			Asserts: pairs + "a header with several lines has the same lines in the same order. (Not asked if no response has one.)",
			Texts:   []Reference{FieldNames}, Customer: "links are lost after a retry", ask: replayHeadersMultiple},
		{ID: "replay/trailers", Level: Should, Title: "trailers are replayed",
			Asserts: pairs + "the trailers are the first's. (Not asked if no response has one.)",
			Texts:   []Reference{Draft26}, Customer: "a checksum or a gRPC status is lost after a retry", ask: replayTrailers},
		{ID: "replay/no-cookie", Level: Should, Title: "a replay does not set the first's cookie",
			Asserts:  pairs + "no Set-Cookie line of the first is in the repetition. (Not asked if no response has one.)",
			Customer: "a session that was ended comes back, or lies in the store for a day", ask: replayNoCookie},
		{ID: "replay/marked", Level: Advice, Title: "a replay says that it is one",
			Asserts: "A repetition carries a header such as Idempotent-Replayed: true.",
			Texts:   []Reference{Stripe}, Customer: "nobody can tell from a log whether a retry ran", ask: replayMarked},
		{ID: "replay/first-unmarked", Level: Should, Title: "a first response does not say that it is a replay",
			Asserts: "A first response carries no such header.",
			Texts:   []Reference{Stripe}, Customer: "a client takes a new payment for an old one", ask: replayFirstUnmarked},
		{ID: "replay/date", Level: Should, Title: "a replay has its own Date",
			Asserts: "A repetition sent 2 s after the first's answer does not have the first's Date.",
			Texts:   []Reference{DateField}, Customer: "caches and clients compute a wrong age", ask: replayDate},
		{ID: "replay/encoding", Level: Must, Title: "body and Content-Encoding of a replay belong together",
			Asserts: "First with Accept-Encoding: gzip, repeated with identity, and the other way round: a body whose Content-Encoding is gzip is gzip, goes only to a client that accepts gzip, and after decoding both bodies are the same. (Not asked if the server never compresses.)",
			Texts:   []Reference{Encoding}, Customer: "the client gets bytes that it cannot read", ask: replayEncoding},
		{ID: "replay/head", Level: Should, Title: "a HEAD with a used key is not answered by the stored response",
			Asserts: "HEAD with the key of a completed request has the status of a HEAD without.",
			Texts:   []Reference{HeadMethod}, Customer: "a client that looks whether something exists is told the outcome of a POST", ask: replayHead},
		{ID: "replay/error", Level: Should, Title: "a repeated refusal of the content stays the same",
			Asserts: "-bad-d (by default a JSON body that is cut) twice under one key: if the first is a 4xx, the second has its status. (Not asked if the server accepts it.)",
			Texts:   []Reference{Draft26}, Customer: "the client is told that its faulty request is in flight, or a success", ask: replayError},
	}
}
