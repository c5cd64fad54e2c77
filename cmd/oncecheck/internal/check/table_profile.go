package check

// profileChecks has the checks that only a profile asks: what its API specifies, and others need not do.
var profileChecks = []Check{
	{ID: "key/echoed", Level: Should, Title: "each response repeats the key in the header of that name", Profiles: []string{"acp", "stripe"},
		Asserts: "The first response, its replay, and the refusals of a reused key and of a duplicate in flight, where there are any: the response header Idempotency-Key is that of the request.",
		Texts:   []Reference{ACP6, Stripe}, Customer: "a client that sends many requests cannot tell to which of them a response belongs", ask: keyEchoed},
	{ID: "mismatch/number-spelling", Level: Must, Title: "a JSON body with 1.0 in place of 1 is the same request", Profiles: []string{"acp"},
		Asserts: "An operation, then its body with a zero behind the point of its first number: a success with the first's body. (Not asked if the body has no number.)",
		Texts:   []Reference{ACPBody}, Customer: "a client whose library writes JSON anew for each try is refused", ask: respelled(otherNumber, "the body has no number", (*T).Same)},
	{ID: "mismatch/null", Level: Must, Title: "a JSON body with one more member, which is null, is another request", Profiles: []string{"acp"},
		Asserts: `An operation, then its key and its body with "oncecheck":null: no success. (Not asked if the body is no JSON object.)`,
		Texts:   []Reference{ACPBody}, Customer: never, ask: respelled(withNull, "the body is no JSON object", wantRefusal)},
	{ID: "errors/5xx-not-stored", Level: Must, Title: "after a 5xx, the same request is processed as a new one", Profiles: []string{"acp"},
		Asserts: "An operation with -fail gets a 5xx; the same without that query, which does not count in the comparison: a success.",
		Texts:   []Reference{ACPErrors}, Customer: "the customer cannot buy: each retry gets the error of the first try", Needs: []Need{Fail}, ask: errorsNotStored},
	{ID: "mismatch/bytes", Level: Must, Title: "a body with other bytes is another request, also if it is the same JSON", Profiles: []string{"ucp"},
		Asserts: "An operation, then its key and its body with a space after each comma and colon: no success. (Not asked if the body is not JSON.)",
		Texts:   []Reference{UCPPayload}, Customer: "a server that verifies the digest of the body, and one that compares its values, disagree about what was sent", ask: respelled(spaced, notJSON, wantRefusal)},
}
