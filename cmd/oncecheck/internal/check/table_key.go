package check

// keyChecks has the checks of how a key is written.
func keyChecks() []Check {
	const asked = "A request with this header is sent twice, the same key and body. "
	return []Check{
		{ID: "key/quoted", Level: Must, Title: "a key in double quotes is accepted",
			Asserts: asked + `Idempotency-Key: "8e03…": the first is a success.`,
			Texts:   []Reference{Draft21, SFStrings}, Customer: "a client that follows the draft cannot use the API", ask: keyAccepted(inQuotes)},
		{ID: "key/bare", Level: Should, Title: "a key without quotes is accepted, as clients send it today",
			Asserts: asked + "Idempotency-Key: 8e03…: the first is a success.",
			Texts:   []Reference{Stripe}, Customer: "a client written for Stripe's form of the key cannot use the API", ask: keyAccepted(accepted[1])},
		{ID: "key/escaped", Level: Should, Title: `a key with \" and \\ is accepted`,
			Asserts: asked + `The key contains \" and \\: the first is a success.`,
			Texts:   []Reference{Draft21, SFStrings}, Customer: "a valid key is refused", ask: keyAccepted(accepted[2])},
		{ID: "key/length-255", Level: Should, Title: "a key of 255 characters is accepted",
			Asserts: asked + "The key has 255 characters: the first is a success.",
			Texts:   []Reference{Stripe}, Customer: "a client with long keys cannot use the API", ask: keyLength255},
		{ID: "key/length-distinct", Level: Must, Title: "long keys that differ at their end are two keys",
			Asserts: "One body under two keys of 250 characters that differ in the last one, and under two of 300 if the server takes these: two effects, unless one is refused.",
			Texts:   []Reference{Draft22}, Customer: "an order is answered with another order's response, and never made", Needs: []Need{Effects}, ask: keyLengthDistinct},
		{ID: "key/too-long", Level: Should, Title: "a key of 4,000 characters is refused with a 4xx, or protects",
			Asserts: asked + "The key has 4,000 characters: no 5xx, and at most one effect.",
			Texts:   []Reference{Stripe}, Customer: "an over-long key crashes the request, or is dropped, and the repetition pays twice", Needs: []Need{Effects}, ask: keyTooLong},
		{ID: "key/spelling", Level: Should, Title: "a key is read as the draft defines it",
			Aliases: []string{"key/bare-is-quoted", "key/parameters", "key/empty", "key/empty-field", "key/bad-escape", "key/unterminated", "key/non-ascii", "key/list", "key/two-fields"},
			Asserts: `The same key with and without quotes is one key, or one of the two is refused; parameters ("8e03…";a=1) are ignored. Each of these gets the status for a malformed key (400): "", no value at all, \x in the key, no closing quote, é, two keys in one line, and in two lines.`,
			Texts:   []Reference{Draft21, SFStrings, SFParse, SFParameters}, Customer: "a client or a proxy that writes the key in another way is not recognized, and its repetition runs again", Needs: []Need{Effects}, ask: keySpelling},
	}
}

// keyRulesChecks has the checks of what a key means.
func keyRulesChecks() []Check {
	return []Check{
		{ID: "key/never-unprotected", Level: Must, Title: "a key that the server cannot read is not taken for none",
			Asserts: "Each form of a key above, but for the empty ones, is sent twice with one body: refused, or at most one effect. A server that runs requests without any key must not do so here.",
			Texts:   []Reference{SFErrors}, Customer: "charged twice, although the client sent a key", Needs: []Need{Effects}, ask: keyNeverUnprotected},
		{ID: "key/refused-not-run", Level: Must, Title: "a request whose key is refused does not run",
			Asserts: "If both tries with one of the headers above are refused (4xx), nothing has happened.",
			Texts:   []Reference{Draft27}, Customer: "the client is told that its request was refused, corrects it, and pays twice", Needs: []Need{Counted}, ask: keyRefusedNotRun},
		{ID: "key/name-case", Level: Must, Title: "the header's name is the same in any case",
			Asserts: "idempotency-key, then IDEMPOTENCY-KEY, with one key and body: one effect.",
			Texts:   []Reference{FieldNames}, Customer: "charged twice when a proxy or HTTP/2 lower-cases the name", Needs: []Need{Effects}, ask: keyNameCase},
		{ID: "key/value-case", Level: Must, Title: "keys that differ in their case are two keys",
			Asserts: "One body under two keys that are the same but for the case of one letter: two effects. (Not asked if the server refuses such keys.)",
			Texts:   []Reference{SFStrings}, Customer: "an order is answered with another order's response, and never made", Needs: []Need{Effects}, ask: keyValueCase},
		{ID: "key/get", Level: Should, Title: "a GET with a key is answered as one without, and does not use the key up",
			Asserts: "GET with a fresh key has the status of a GET without; a POST with that key then runs.",
			Texts:   []Reference{SafeMethods}, Customer: "an order is refused, or answered with a list, because a GET came first", ask: keyGet},
		{ID: "key/missing", Level: Should, Title: "where a key is required, a request without one gets 400",
			Asserts: "A request without a key: if it is refused, with the status for a missing key (400). (Not asked if it runs: then the key is optional here.)",
			Texts:   []Reference{Draft27}, Customer: "the developer of a client does not learn what is missing", ask: keyMissing},
		{ID: "key/missing-runs", Level: Advice, Title: "a request without a key is refused",
			Asserts: "A request without a key is no success.",
			Texts:   []Reference{Draft27}, Customer: "a client that forgets the key is not protected, and nobody notices", ask: keyMissingRuns},
		{ID: "key/missing-not-run", Level: Must, Title: "a request that is refused because it has no key does not run",
			Asserts: "A request without a key, if refused, has no effect.",
			Texts:   []Reference{Draft27}, Customer: "charged by a request that was refused", Needs: []Need{Counted}, ask: keyMissingNotRun},
	}
}
