package keyfunc

import (
	"cmp"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"

	"github.com/onceguard/onceguard/internal/canonical"
	"github.com/onceguard/onceguard/internal/option"
)

// Form reads the key from a field of an HTML form, urlencoded or multipart/form-data. It is usually a hidden field, in
// which the server puts a fresh UUID whenever it renders the page. Form does not read the URL; see [Query].
//
// Form reads the whole body and puts it back. It sets no limit: middleware.Idempotency applies WithMaxBody; elsewhere
// use http.MaxBytesReader. Form leaves r.PostForm and r.MultipartForm alone, and writes no temporary file. If an
// earlier middleware has parsed the form, Form takes the field from there, and cannot see an error that this middleware
// ignored.
//
// [MissingError]: the request has no such field, no body, or a body that is not a form. ErrInvalid: the form is
// malformed, or the field is empty, occurs twice, is a file, is longer than 255 characters, or has characters outside
// 0x20-0x7E. A form that is empty although its length was not known in advance (chunks, HTTP/2) is an ErrInvalid too:
// it may have been read before. An error of reading the body, such as *http.MaxBytesError, is returned wrapped, and the
// next reader gets it too. A body with a Content-Length that was read before and not put back is another error. Form
// panics when field is empty. The Func is safe for concurrent use.
func Form(field string) Func {
	option.Check(field != "", "keyfunc.Form: field is empty")
	place := fmt.Sprintf("form field %q", field)
	missing := error(MissingError{In: "form field", Name: field})
	return func(r *http.Request) (string, error) {
		if values, ok := parsedField(r, field); ok {
			return single(place, missing, values)
		}
		contentType := r.Header.Get("Content-Type")
		var parse func(contentType string, body []byte, field string) ([]string, error)
		switch canonical.MediaType(contentType) {
		case "application/x-www-form-urlencoded":
			parse = urlencodedField
		case "multipart/form-data":
			parse = multipartField
		default:
			return "", missing
		}

		body, err := readBody(r)
		if err != nil {
			return "", err
		}
		if len(body) == 0 {
			isParsed := len(r.PostForm) > 0 || r.PostForm != nil && r.MultipartForm != nil
			if !isParsed {
				err = emptyBody(place, r)
			}
			return "", cmp.Or(err, missing)
		}
		values, err := parse(contentType, body, field)
		if err != nil {
			return "", invalid(place, "cannot be read: the form is malformed")
		}
		return single(place, missing, values)
	}
}

// parsedField returns the field from a form that an earlier middleware has parsed. ok is false if the parsed form lacks
// the field, because the body may still have it: ParseForm does not read multipart bodies, nor those of some methods,
// and leaves an empty form when it fails.
func parsedField(r *http.Request, field string) (values []string, ok bool) {
	values = r.PostForm[field]
	if r.MultipartForm != nil {
		if len(values) == 0 {
			values = r.MultipartForm.Value[field]
		}
		values = slices.Clip(values)
		for range r.MultipartForm.File[field] {
			values = append(values, "") // as multipartField does
		}
	}
	return values, len(values) > 0
}

func urlencodedField(_ string, body []byte, field string) (values []string, err error) {
	form, err := url.ParseQuery(string(body))
	return form[field], err
}

// multipartField reads at most maxLen+1 bytes of each value. A file with the field's name counts as an empty value,
// which is invalid: the sender meant it to be the key.
func multipartField(contentType string, body []byte, field string) (values []string, err error) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, err
	}
	parts := canonical.Parts(params["boundary"], body)
	for {
		part, err := parts.NextPart()
		if err == io.EOF {
			return values, nil
		}
		if err != nil {
			return nil, err
		}
		if part.FormName() != field {
			continue
		}
		if part.FileName() != "" {
			values = append(values, "")
			continue
		}
		value, err := io.ReadAll(io.LimitReader(part, maxLen+1))
		if err != nil {
			return nil, err
		}
		values = append(values, string(value))
	}
}
