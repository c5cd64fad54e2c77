package middleware

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceguard/onceguard/middleware/internal/problem"
)

// Defaults returns, by the name of each option, its default in the words of docs/reference.md.
func Defaults() map[string]string {
	o := defaultOptions()
	unless := func(on bool, words string) string {
		if on {
			return "on"
		}
		return words
	}
	methods := slices.Sorted(maps.Keys(o.methods))
	slices.Reverse(methods) // POST first
	return map[string]string{
		"WithMethods":         strings.Join(methods, ", "),
		"WithRequired":        unless(o.required, "passes, unprotected"),
		"WithKeyAge":          unless(o.keyAge > 0, "any"),
		"WithWait":            unless(o.policy.Wait > 0, "409"),
		"WithMaxWaiters":      fmt.Sprintf("%d,%03d", o.policy.MaxWaiters/1000, o.policy.MaxWaiters%1000),
		"WithRetention":       InWords(o.policy.Retention),
		"WithStored":          "all but " + notStored(o.shouldStore),
		"WithAtMostOnce":      unless(o.policy.AtMostOnce, "may run again when its lease has run out"),
		"WithMaxDuration":     InWords(o.policy.MaxDuration),
		"WithMaxBody":         fmt.Sprintf("%d MiB", o.maxBody>>20),
		"WithMaxResponse":     fmt.Sprintf("%d MiB", o.maxResponse>>20),
		"WithFingerprint":     unless(o.rules[0].lends, "SHA-256 of method, path, query, media type, body"),
		"WithJSONFingerprint": unless(o.rules[0].kind != defaultRules[0].kind, "SHA-256 of method, path, query, media type, body"),
		"WithFailOpen":        unless(o.policy.FailOpen, "503"),
		"WithShadow":          unless(o.shadow, "acts"),
		"WithCookies":         unless(o.cookies, "left out"),
		"WithJournal":         unless(o.policy.Journal != nil, "Redis alone"),
		"WithEncryption":      unless(len(o.policy.Codec.Keys) > 0, "none"),
		"WithPlaintextReads":  unless(o.policy.Codec.PlaintextReads, "500"),
		"WithCompression":     unless(o.policy.Codec.Compress, "none"),
		"WithObserver":        unless(o.observe != nil, "none"),
		"WithTraceparent":     unless(o.traceparent != nil, "none"),
		"WithProblem":         contentTypes(),
	}
}

// InWords returns a duration in the largest unit that it is a multiple of.
func InWords(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d%time.Second == 0:
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// notStored lists the statuses that are not stored, "5xx" for all from 500 on.
func notStored(stored func(int) bool) string {
	var list []string
	for status := 200; status < 500; status++ {
		if !stored(status) {
			list = append(list, strconv.Itoa(status))
		}
	}
	for status := 500; status < 600; status++ {
		if stored(status) {
			return strings.Join(list, ", ")
		}
	}
	return strings.Join(list, ", ") + ", 5xx"
}

// contentTypes lists what a program and a browser get.
func contentTypes() string {
	var types []string
	for _, accept := range []string{"*/*", "text/html"} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Accept", accept)
		problem.KeyMissing.Write(w, r)
		name, _, _ := strings.Cut(w.Header().Get("Content-Type"), ";")
		types = append(types, "`"+name+"`")
	}
	return strings.Join(types, " or ")
}
