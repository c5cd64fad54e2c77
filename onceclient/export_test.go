package onceclient

import (
	"net/http"
	"time"
)

func RetryAfter(h http.Header, now time.Time) time.Duration { return retryAfter(h, now) }

func ProblemTypeOf(h http.Header, body []byte) string { return problemType(h, body) }

func Quote(key string) string { return quote(key) }

func Unquote(value string) string { return unquote(value) }
