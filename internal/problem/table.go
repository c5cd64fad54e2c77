package problem

import "github.com/onceguard/onceguard/internal/run"

// words are what a problem says.
type words struct {
	status        int
	name          string // the Type, after TypePrefix
	title, detail string
	// The HTML page. Its reader has filled in a form, and does not know idempotency keys.
	heading, text string
}

// table has a row for each Kind that is refused. Rows with one name have the same status and title.
var table = [run.KindCount]words{
	run.InFlight: {
		409, "in-flight", "First request has no result yet",
		"A request with this idempotency key was received before and has no result yet. Repeat it later to get its result.",
		"We have received this already", "The form was sent more than once, and the first time has no result yet. It counts only once. " +
			"Reload this page in a moment to see the result.",
	},
	run.Expired: {
		400, "key-expired", "Idempotency key is too old",
		"This idempotency key is too old: the server no longer knows whether the request was processed before. It is not processed " +
			"now. Find out whether it was processed before you use a new key.",
		"This form is too old", "We no longer know whether you have sent this form before. It is not processed now. Please check, or " +
			"ask us, before you send a new one.",
	},
	run.NoRecord: {
		503, "run-failed", "The first request has failed",
		"The first request with this idempotency key ended and left no response. Repeat it to have it processed.",
		"That did not work", "The form was received, and something went wrong before there was a result. Reload this page to try again.",
	},
	run.Reused: {
		422, "key-reused", "Idempotency key is already used",
		"This idempotency key was used for another request. Use a new key for a new request.",
		"You have already sent this form", "You have already sent this form with different details, and the first version counts. To " +
			"send a new one, go back and reload the page first.",
	},
	run.NotKept: {
		409, "response-not-stored", "Response was not kept",
		"The request with this idempotency key was processed, but its response was not kept. It is not processed again.",
		"This has already been processed", "The form was processed when you sent it before. Its result cannot be shown here again.",
	},
	run.UnknownNotKept: {
		409, "response-not-stored", "Response was not kept",
		"A request with this idempotency key was started, and it is not known whether it took effect. Its response was not kept. It is " +
			"not processed again.",
		"We do not know whether this has worked", "The form was received, and something went wrong before there was a result. It is not " +
			"processed again by itself. Please check, or ask us, before you send a new one.",
	},
	run.Unknown: {
		409, "outcome-unknown", "Outcome is unknown",
		"A request with this idempotency key was started, and it is not known whether it took effect. It is not processed again.",
		"We do not know whether this has worked", "The form was received, and something went wrong before there was a result. It is not " +
			"processed again by itself. Please check, or ask us, before you send a new one.",
	},
	run.UnknownYet: {
		409, "outcome-unknown", "Outcome is unknown",
		"A request with this idempotency key was started, and it is not known yet whether it took effect. It is not processed again " +
			"before that is known. Repeat it later with the same key to find out.",
		"We do not know yet whether this has worked", "The form was received, and something went wrong before there was a result. We " +
			"are finding out. Reload this page in a few minutes to see the result. It will not happen twice.",
	},
	run.FingerprintChanged: {
		409, "fingerprint-changed", "Requests cannot be compared",
		"A request with this idempotency key was processed, but the server now tells requests apart by another rule, so it cannot tell " +
			"whether this is the same request. It is not processed again. Use a new key for a new request.",
		"This has already been processed", "A form from this page was processed before, and we cannot tell whether it was the same. " +
			"Please check before you send a new one.",
	},
	run.Unreadable: {
		500, "record-unreadable", "Stored response is unreadable",
		"What is stored for this idempotency key cannot be read, so it is not known what the request did. It is not processed again.",
		"We do not know whether this has worked", "The form was received before, and its result cannot be shown. It is not processed " +
			"again. Please check, or ask us, before you send a new one.",
	},
	run.Unavailable: {
		503, "store-unavailable", "Idempotency store is unavailable",
		"The server cannot tell whether this request is a repetition, so it did not process it. Repeat it later.",
		"Please try again in a moment", "We cannot accept the form right now. Reload this page in a moment to send it again.",
	},
	run.Unconfirmed: {
		503, "store-unavailable", "Idempotency store is unavailable",
		"A request with this idempotency key was processed, but the server cannot confirm yet that its response is stored safely. It is " +
			"not processed again. Repeat it later to get its response.",
		"This has already been processed", "Its result cannot be shown yet. Reload this page in a moment to see it.",
	},
	// The time in the detail is that of a lease.
	run.NotBegun: {
		503, "store-unavailable", "Idempotency store is unavailable",
		"The server could not start to process this request, so nothing was done. Repeat it later. For up to %v a repetition may be " +
			"answered with 409.",
		"Please try again in a moment", "We cannot accept the form right now. Reload this page in a moment to send it again.",
	},
	run.CommitUnknown: {
		503, "commit-unknown", "Outcome is not known yet",
		"It is not known yet whether this request took effect. Repeat it with the same key to find out.",
		"We do not know yet whether this went through", "Reload this page in a moment to find out. It will not happen twice.",
	},
	run.KeyMissing: {
		400, "key-missing", "Idempotency key is missing",
		"This operation must carry an idempotency key, so that it can be repeated safely.",
		"This form cannot be sent",
		"The page that you sent it from may be out of date. Nothing was done. Go back, reload the page and send the form again.",
	},
	run.KeyInvalid: {
		400, "key-invalid", "Idempotency key is invalid",
		"An idempotency key has 1 to 255 printable ASCII characters and must be sent exactly once. In a header it stands in double " +
			"quotes, or bare if it has no spaces, quotes, backslashes, commas or semicolons.",
		"This form cannot be sent",
		"The page that you sent it from may be out of date. Nothing was done. Go back, reload the page and send the form again.",
	},
	run.KeyOfFuture: {
		400, "key-invalid", "Idempotency key is invalid",
		"This idempotency key was made more than an hour in the future. Nothing was done. Set the clock of the client right, and use a " +
			"new key.",
		"This form cannot be sent",
		"The clock of your device seems to be wrong. Nothing was done. Set it right, reload the page and send the form again.",
	},
	run.KeyFailed: {
		500, "key-failed", "Idempotency key cannot be determined",
		"The server failed to determine the idempotency key. Nothing was done.",
		"Something went wrong", "The fault is ours. Nothing was done. Please try again later.",
	},
	run.UserUnknown: {
		401, "user-unknown", "User is unknown",
		"This operation needs an authenticated user. Nothing was done.",
		"Please sign in", "You have to be signed in for this. Nothing was done.",
	},
	run.BodyTooLarge: {
		413, "body-too-large", "Request body is too large",
		"The body is longer than this operation accepts. Nothing was done.",
		"This is too large", "What you sent is larger than we can accept. Nothing was done.",
	},
	run.BodyUnreadable: {
		400, "body-unreadable", "Request body cannot be read",
		"The body ended early or is malformed. Nothing was done.",
		"We did not receive everything",
		"The connection was interrupted while you sent the form. Nothing was done. Reload this page to send it again.",
	},
}
