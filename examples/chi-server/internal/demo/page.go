package demo

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page and its parts
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
)

// OrderForm is what the page shows of the order form.
type OrderForm struct {
	KeyField, Key        string
	MaxItem, MaxQuantity int
	Placed               []Link
}

// Link is a link to an order that was placed.
type Link struct{ Path, Text string }

// The page is one document: style and script are put into it as they stand in their files.
var (
	//go:embed page.html
	pageSource string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string
)

var page = template.Must(template.New("page").Parse(pageSource))

// pageData is what the page is made of.
type pageData struct {
	Style    template.CSS
	Script   template.JS
	Form     OrderForm
	Visitor  string
	Embedded bool
}

// pagePolicy is the page's Content-Security-Policy. Style and script of the page are allowed by their hashes, and
// nothing else.
var pagePolicy = fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'; img-src data:; connect-src 'self'; "+
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'", hash(pageStyle), hash(pageScript))

// hash returns the hash of an element's text as CSP wants it.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Page writes the page with an order form. It must not be cached: the form's key would be a used one.
func (d *Demo) Page(w http.ResponseWriter, r *http.Request, form OrderForm) {
	var b bytes.Buffer
	err := page.Execute(&b, pageData{
		Style:    template.CSS(pageStyle),
		Script:   template.JS(pageScript),
		Form:     form,
		Visitor:  d.cfg.Visitor(r.Context()),
		Embedded: d.cfg.Embedded,
	})
	if err != nil {
		http.Error(w, "The page cannot be shown.", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	_, _ = b.WriteTo(w) // the client may have disconnected
}
