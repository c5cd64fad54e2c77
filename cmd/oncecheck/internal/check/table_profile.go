package check

// profileChecks has the checks that only a profile asks: what its API specifies, and others need not do.
var profileChecks = []Check{
	{ID: "key/echoed", Level: Should, Title: "each response repeats the key in the header of that name", Profiles: []string{"acp", "stripe"},
		Asserts: "The first response, its replay, and the refusals of a reused key and of a duplicate in flight, where there are any: the response header Idempotency-Key is that of the request.",
		Texts:   []Reference{ACP6, Stripe}, Customer: "a client that sends many requests cannot tell to which of them a response belongs", ask: keyEchoed},
}
