package check

const never = "an order is answered with another order's response, and never made"

// mismatchChecks has the checks of a key that is used for another request.
var mismatchChecks = []Check{
	{ID: "mismatch/body", Level: Must, Title: "the same key with another body neither runs nor gets the stored response",
		Asserts: "An operation, then its key with another {{n}} (or -other-d): no success.",
		Texts:   []Reference{Draft22, Draft24}, Customer: never, ask: mismatchBody},
	{ID: "mismatch/not-run", Level: Must, Title: "a request refused for its body has no effect",
		Asserts: "After the refusal of mismatch/body there is one effect. (Not asked if it was no refusal.)",
		Texts:   []Reference{Draft27}, Customer: "charged by a request that was refused", Needs: []Need{Counted}, ask: mismatchNotRun},
	{ID: "mismatch/status", Level: Should, Title: "another body gets 422, or the status that -status names",
		Asserts: "The refusal of mismatch/body has the status for a reused key (422). (Not asked if it was no refusal.)",
		Texts:   []Reference{Draft27}, Customer: "the client retries for ever, or takes its own bug for a conflict", ask: mismatchStatus},
	{ID: "mismatch/original-stays", Level: Must, Title: "after a refusal the original is still replayed",
		Asserts: "After mismatch/body the first request once more: no effect, and the first's body if it is a success.",
		Texts:   []Reference{Draft26}, Customer: "charged twice after a client's bug", Needs: []Need{Effects}, ask: mismatchOriginalStays},
	{ID: "mismatch/query", Level: Should, Title: "the same key with another query does not get the stored response",
		Asserts: "An operation, then its key and body with ?oncecheck=other: not a success with the stored body.",
		Texts:   []Reference{Draft24}, Customer: never, ask: notStored("the stored response", withQuery)},
	{ID: "mismatch/method", Level: Must, Title: "the same key with another method does not get the stored response",
		Asserts: "A POST, then PUT with its key, path and body (PATCH if the operation is a PUT): not the stored response.",
		Texts:   []Reference{Draft24}, Customer: "a change is answered with the response of another, and never made", ask: notStored("the stored response", withMethod)},
	{ID: "mismatch/path", Level: Must, Title: "the same key on another path does not get the stored response",
		Asserts: "An operation, then the same to its path with /oncecheck appended: not the stored response.",
		Texts:   []Reference{Draft24}, Customer: never, ask: notStored("the stored response", withPath)},
	{ID: "mismatch/leak", Level: Must, Title: "a refusal shows nothing of the stored response",
		Asserts: "No value of the stored response that differs from run to run (such as its id) and has 8 characters or more is in the refusal of mismatch/body.",
		Texts:   []Reference{Draft5}, Customer: "who guesses a key reads what somebody else has bought", ask: mismatchLeak},
	{ID: "mismatch/whitespace", Level: Advice, Title: "a JSON body with other white space is the same request",
		Asserts:  "An operation, then its body with a space after each comma and colon: a success with the first's body. (Not asked if the body is not JSON.)",
		Customer: "a client whose library writes JSON anew for each try is refused", ask: respelled(spaced, notJSON, (*T).Same)},
	{ID: "mismatch/in-flight", Level: Must, Title: "while the first runs, the same key with another body does not run",
		Asserts: "An operation with -slow, and while it runs its key with another body (without -slow: both at once): one of the two is a success, the other is none, and there is one effect.",
		Texts:   []Reference{Draft22, Draft24}, Customer: "charged twice, or " + never, Needs: []Need{Effects}, ask: mismatchInFlight},
	{ID: "mismatch/in-flight-status", Level: Should, Title: "while the first runs, another body is refused as another, and not as in flight",
		Asserts: "The refusal of mismatch/in-flight has the status for a reused key.",
		Texts:   []Reference{Draft27}, Customer: "the client waits and retries what can never succeed", ask: mismatchInFlightStatus},
}

// scopeChecks has the checks of two users, and two routes, with one key.
var scopeChecks = []Check{
	{ID: "scope/user", Level: Must, Title: "another user with the same key and body does not get the first's response",
		Asserts: "The same request with the headers of -H2: not the stored response. (Not asked if the second user can do nothing under another key, or if the repetition is refused as well.)",
		Texts:   []Reference{Draft5}, Customer: "a customer sees another customer's payment", Needs: []Need{User2}, ask: scopeUser},
	{ID: "scope/user-runs", Level: Must, Title: "another user's request with the same key runs",
		Asserts: "The same request with the headers of -H2 is a success of its own, and its repetition replays it. (Not asked if the same under another key is none either.)",
		Texts:   []Reference{Draft5}, Customer: "an order is refused, or never made, because somebody else had the same key", Needs: []Need{User2}, ask: scopeUserRuns},
	{ID: "scope/user-in-flight", Level: Must, Title: "while one user's request runs, another's with the same key runs too",
		Asserts: "An operation with -slow, and while it runs the same with the headers of -H2 (without -slow: both at once): a success of its own, no refusal. (Not asked if the same under another key is none either.)",
		Texts:   []Reference{Draft5}, Customer: "who guesses or repeats keys blocks other customers", Needs: []Need{User2}, ask: scopeUserInFlight},
	{ID: "scope/route", Level: Must, Title: "the same key on another route does not get the first's response",
		Asserts: "The same key and body to -other-url: not the stored response. (Not asked if that is no success under another key.)",
		Texts:   []Reference{Draft24}, Customer: "a refund is answered with the response of a payment, and never made", Needs: []Need{OtherURL}, ask: scopeRoute},
}

// inflightChecks has the checks of a duplicate while the first runs.
var inflightChecks = []Check{
	{ID: "inflight/answer", Level: Must, Title: "a duplicate of a running request gets a conflict, or the first's response",
		Asserts: "An operation with -slow, and two more while it runs (without -slow: ten at once): each is the in-flight status (409), or a success with the first's body.",
		Texts:   []Reference{Draft26, Draft27}, Customer: "the client is told an outcome that nobody knows yet", ask: inflightAnswer},
	{ID: "inflight/once", Level: Must, Title: "a duplicate of a running request does not run",
		Asserts: "After inflight/answer there is one effect.",
		Texts:   []Reference{Draft26}, Customer: "a double click on a slow shop is charged twice", Needs: []Need{Effects}, ask: inflightOnce},
	{ID: "inflight/time", Level: Should, Title: "a duplicate is answered in time",
		Asserts: "Every duplicate of inflight/answer is answered within -timeout.",
		Texts:   []Reference{Draft27}, Customer: "the second click hangs", ask: inflightTime},
	{ID: "inflight/retry-after", Level: Advice, Title: "the conflict says when to try again",
		Asserts: "The in-flight refusal has a Retry-After. (Not asked if duplicates wait for the answer.)",
		Texts:   []Reference{RetryAfter}, Customer: "clients guess, and give up too early or poll too often", ask: inflightRetryAfter},
	{ID: "inflight/retry-after-sane", Level: Should, Title: "Retry-After of the conflict is a sane number of seconds",
		Asserts: "If it is there: a whole number from 1 to 300, or a date at most 300 s ahead and not past.",
		Texts:   []Reference{RetryAfter}, Customer: "clients hammer the server, or wait for an hour", ask: inflightRetryAfterSane},
	{ID: "inflight/then-replay", Level: Should, Title: "after the first has ended, its duplicate gets its response",
		Asserts: "After the success of inflight/answer: the same again, until it is no conflict, is a success with the first's body.",
		Texts:   []Reference{Draft26}, Customer: "the client that was told to wait never learns the outcome", ask: inflightThenReplay},
}
