package check

const eachKind = "Of each refusal that concerns the key (missing, malformed, reused, in flight) seen so far: "

// failuresChecks has the checks of requests that fail, and of the refusals themselves.
var failuresChecks = []Check{
	{ID: "errors/validation", Level: Must, Title: "after a refused body, a corrected request under a new key runs",
		Asserts:  "-bad-d (by default a JSON body that is cut) is refused with a 4xx; a good one under a new key is a success. (Not asked if the server accepts the bad one.)",
		Customer: "a typing error locks the customer out", ask: errorsValidation},
	{ID: "errors/failed-once", Level: Must, Title: "a request that failed after its effect does not have a second one",
		Asserts: "An operation with -fail, with one key until three tries were answered other than as in flight: at most one effect.",
		Texts:   []Reference{Stripe}, Customer: "charged again for every retry of a payment that was made, but answered with an error", Needs: []Need{Fail, Counted}, ask: each(failures, hadAtMostOne)},
	{ID: "errors/failed-answered", Level: Should, Title: "a request that failed does not lock its key for ever",
		Asserts: "As errors/failed-once, for up to -patience: a repetition is answered other than as in flight. A 409 with X-Should-Retry: false is such an answer.",
		Texts:   []Reference{Draft27}, Customer: "the customer cannot pay for a day: the key says that the request still runs", Needs: []Need{Fail}, ask: each(failures, isUnlocked)},
	{ID: "errors/failed-not-success", Level: Must, Title: "a failed request without effect is not answered with a success later",
		Asserts: "As errors/failed-once: if one of the answers is a success, there is an effect.",
		Texts:   []Reference{Draft26}, Customer: "the customer believes to have paid, and has not", Needs: []Need{Fail, Counted}, ask: each(failures, noWrongSuccess)},
	{ID: "errors/problem", Level: Should, Title: "refusals are problem documents",
		Asserts: eachKind + "Content-Type is application/problem+json, the body a JSON object, its status (if there) that of the response, type and title (if there) strings.",
		Texts:   []Reference{ProblemDetails, Draft27}, Customer: "a client cannot tell one conflict from another", ask: errorsProblem},
	{ID: "errors/no-store", Level: Advice, Title: "refusals are not to be cached",
		Asserts: eachKind + "Cache-Control has no-store.",
		Texts:   []Reference{Caching}, Customer: "a cache may hand a refusal to a client whose retry would succeed", ask: errorsNoStore},
	{ID: "errors/says-retry", Level: Advice, Title: "conflicts say whether to retry",
		Asserts:  eachKind + "each 409 and 5xx has Retry-After or X-Should-Retry.",
		Customer: "client libraries guess from the status, and guess wrong", ask: errorsSaysRetry},
	{ID: "errors/key-not-shown", Level: Advice, Title: "refusals do not repeat the key",
		Asserts: eachKind + "the key is neither in the body nor in a header.",
		Texts:   []Reference{Draft5}, Customer: "keys end up in the logs of everybody in between", ask: errorsKeyNotShown},
}

// storeChecks has the checks of the server whose store is down.
var storeChecks = []Check{
	{ID: "store/down-once", Level: Must, Title: "without its store the server does not run a request twice",
		Asserts: "-store-down; a new operation three times under one key; -store-up; the same until it is answered: at most one effect.",
		Texts:   []Reference{Draft26}, Customer: "charged twice in every outage of the store", Needs: []Need{Store, Effects}, ask: storeDownOnce},
	{ID: "store/down-completed", Level: Must, Title: "what was completed before does not run again",
		Asserts: "An operation; -store-down; the same: a refusal, or a success with the first's body; one effect.",
		Texts:   []Reference{Draft26}, Customer: "charged twice in every outage of the store", Needs: []Need{Store, Effects}, ask: storeDownCompleted},
	{ID: "store/down-answered", Level: Should, Title: "without its store the server answers in time",
		Asserts:  "Each request of store/down-once and store/down-completed gets an answer within -timeout; a new operation's is a success, a 429 or a 5xx.",
		Customer: "every payment hangs, and its client does not know whether to retry", Needs: []Need{Store}, ask: storeDownAnswered},
	{ID: "store/recovers", Level: Must, Title: "when the store is back, requests run again",
		Asserts:  "-store-up; new operations, each under its own key, until one is a success, for up to -patience.",
		Customer: "nobody can pay until somebody restarts the server", Needs: []Need{Store}, ask: storeRecovers},
	{ID: "store/remembers", Level: Should, Title: "what was completed before the outage is replayed after it",
		Asserts: "The operation of store/down-completed after -store-up: a success with the first's body, one effect.",
		Texts:   []Reference{Draft26}, Customer: "charged twice after an outage of the store", Needs: []Need{Store, Effects}, ask: storeRemembers},
}

// crashChecks has the checks of the server's death.
var crashChecks = []Check{
	{ID: "crash/at-most-once", Level: Advice, Title: "killed while it works, a request has at most one effect in the end",
		Asserts: "-slow, and -restart while it runs; the same until it is answered, for up to -patience: at most one effect. A MUST with -at-most-once; without it, a server whose lease runs out may run again.",
		Texts:   []Reference{Draft26}, Customer: "charged twice when a server dies", Needs: []Need{Restart, Slow, Counted}, ask: each(crashes, hadAtMostOne)},
	{ID: "crash/no-wrong-success", Level: Must, Title: "killed while it works, a request is not called a success that it was not",
		Asserts: "As crash/at-most-once: if a repetition is a success, there is an effect.",
		Texts:   []Reference{Draft26}, Customer: "the customer believes to have paid, and has not", Needs: []Need{Restart, Slow, Counted}, ask: each(crashes, noWrongSuccess)},
	{ID: "crash/answered", Level: Should, Title: "killed while it works, a request gets an answer in the end",
		Asserts: "As crash/at-most-once: within -patience an answer that is no in-flight refusal.",
		Texts:   []Reference{Draft27}, Customer: "the customer cannot pay for a day: the key says that the request still runs", Needs: []Need{Restart, Slow}, ask: each(crashes, wasAnswered)},
	{ID: "crash/after-answer", Level: Must, Title: "killed after its answer, the server remembers the request",
		Asserts: "An operation and its answer; -restart; the same: a success with the first's body, one effect.",
		Texts:   []Reference{Draft26}, Customer: "charged twice after every deployment", Needs: []Need{Restart, Effects}, ask: crashAfterAnswer},
}

// otherChecks has the checks of CORS, caches and load.
var otherChecks = []Check{
	{ID: "cors/preflight", Level: Must, Title: "a preflight is not refused because it has no key",
		Asserts: "OPTIONS as a browser sends it, without a key: not the status for a missing key (400), unless another OPTIONS, with a key, gets it too.",
		Texts:   []Reference{CORS}, Customer: "the shop's page cannot pay at all", ask: corsPreflight},
	{ID: "cors/allowed", Level: Should, Title: "a preflight allows the key's header",
		Asserts: "Access-Control-Allow-Headers of the preflight's answer names the header, or is *. (Not asked if the server does not answer CORS.)",
		Texts:   []Reference{CORS}, Customer: "the shop's page cannot send a key", ask: corsAllowed},
	{ID: "cors/exposed", Level: Advice, Title: "a page may read what the server says about a replay",
		Asserts: "Access-Control-Expose-Headers of a replay names the header that marks it, and Location if it is there. (Not asked if the server does not answer CORS.)",
		Texts:   []Reference{CORS}, Customer: "the shop's page cannot tell a replay, or find what was bought", ask: corsExposed},
	{ID: "cache/no-age", Level: Should, Title: "a replay has no Age",
		Asserts: "No repetition has an Age header: it comes from the server, not from an HTTP cache.",
		Texts:   []Reference{AgeField}, Customer: "caches and clients compute a wrong age", ask: replayed(noReplay, every, noAge)},
	{ID: "load/shuffled", Level: Must, Title: "200 keys, five times each in any order, have one effect and one body each",
		Asserts: "1,000 requests shuffled over the instances, -parallel at a time; at the end each key once more if none of its five was a success: 200 effects, and the successes of a key have one body. Refusals are allowed in between.",
		Texts:   []Reference{Draft26}, Customer: "charged twice on a busy day", Needs: []Need{Effects}, ask: loadShuffled},
}
