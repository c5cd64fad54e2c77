package main

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the pages
	"encoding/base64"
	"html/template"
	"net/http"
	"regexp"
)

//go:embed pages.html
var pagesSource string

var pages = template.Must(template.New("").Parse(pagesSource))

// pagesPolicy is the Content-Security-Policy of all pages here: their own style, and no scripts.
var pagesPolicy = func() string {
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(pagesSource)
	sum := sha256.Sum256([]byte(style[1]))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}()

// render answers with a page, or with 500 if the template fails.
func render(w http.ResponseWriter, status int, name string, data any) {
	var page bytes.Buffer
	if err := pages.ExecuteTemplate(&page, name, data); err != nil {
		writeProblem(w, http.StatusInternalServerError, "The page cannot be shown.")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", pagesPolicy)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w) // the client may have disconnected
}
