package keyfunc

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"

	"github.com/onceguard/onceguard/internal/canonical"
)

// Form takes the key from a field of an HTML form, urlencoded or multipart/form-data: usually a
// hidden field that the server filled with a fresh UUID when it rendered the page. It looks only into
// the body, not into the URL; that is [Query].
//
// The body is read whole, and left to be read again. Form sets no limit of its own:
// middleware.Idempotency bounds it with WithMaxBody, elsewhere use http.MaxBytesReader. r.PostForm and
// r.MultipartForm are left as they are and no temporary file is written. If an earlier middleware has
// already parsed the form, Form takes the field from there; an error that this middleware ignored can
// then no longer be seen.
//
// [MissingError]: no such field, no body, or a body that is no form. ErrInvalid: the form cannot be
// parsed, or the field is empty, stands twice, is a file, is longer than 255 characters or has characters
// outside of 0x20-7E. An error while the body is read is returned wrapped: *http.MaxBytesError, for
// instance, is found by errors.As, and the next reader of the body meets it as well. So is the error
// for a body that somebody else read and did not put back. Form panics when field is empty. The Func
// is safe for concurrent use.
func Form(field string) Func {
	if field == "" {
		panic("keyfunc.Form: field is empty")
	}
	place := fmt.Sprintf("form field %q", field)
	missing := error(MissingError{In: "form field", Name: field})
	return func(r *http.Request) (string, error) {
		if values, ok := parsedField(r, field); ok {
			return only(place, missing, values)
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
		if r.PostForm == nil && bodyGone(r, body) {
			return "", errBodyGone
		}
		if len(body) == 0 {
			return "", missing
		}
		values, err := parse(contentType, body, field)
		if err != nil {
			return "", invalid(place, "cannot be looked for: the form does not parse")
		}
		return only(place, missing, values)
	}
}

// parsedField looks into what an earlier middleware has parsed. ok is false also for a parsed form
// without the field: ParseForm reads no body at all for multipart and for some methods, and leaves an
// empty form behind when it fails. What is still to be read decides then.
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

// multipartField reads no value further than is needed to see that it is too long. A file under the
// field's name is an empty value, and so an invalid one: the sender meant a key to be there.
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
