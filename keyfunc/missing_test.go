package keyfunc_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/onceguard/onceguard/keyfunc"
)

func TestMissingErrorNamesThePlace(t *testing.T) {
	t.Parallel()
	header := keyfunc.MissingError{In: "header", Name: "Idempotency-Key"}
	form := keyfunc.MissingError{In: "form field", Name: "key"}
	query := keyfunc.MissingError{In: "query parameter", Name: "key"}
	byHeader, byForm, byQuery := keyfunc.Header("idempotency-key"), keyfunc.Form("key"), keyfunc.Query("key")
	for name, test := range map[string]struct {
		fn   keyfunc.Func
		r    *http.Request
		want keyfunc.MissingError
	}{
		"header":                      {byHeader, post("/"), header},
		"no form":                     {byForm, post("/"), form},
		"empty form":                  {byForm, withBody(urlencoded, ""), form},
		"form without the field":      {byForm, withBody(urlencoded, "a=1"), form},
		"no query":                    {byQuery, post("/"), query},
		"query without the parameter": {byQuery, post("/?a=1"), query},
		"first of many":               {keyfunc.First(byHeader, byForm, byQuery), post("/"), header},
		"first, in its order":         {keyfunc.First(byForm, byHeader), post("/"), form},
		"composed":                    {keyfunc.Compose(keyfunc.Route(), byQuery), post("/"), query},
		"standard":                    {keyfunc.Standard(keyfunc.Anonymous()), post("/"), header},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := test.fn(test.r)
			var got keyfunc.MissingError
			if !errors.As(err, &got) || got != test.want {
				t.Errorf("%#v, want %#v", err, test.want)
			}
			if !errors.Is(err, keyfunc.ErrMissing) {
				t.Errorf("%v is not ErrMissing", err)
			}
		})
	}
}

// The place of the user is not the place of the key, so the error must not name it.
func TestStandardDoesNotNameThePlaceOfTheUser(t *testing.T) {
	t.Parallel()
	_, err := keyfunc.Standard(keyfunc.Header("X-User"))(withKey("abc"))
	if !errors.Is(err, keyfunc.ErrNoUser) || errors.As(err, new(keyfunc.MissingError)) {
		t.Errorf("%#v, want ErrNoUser and no MissingError", err)
	}
}

func ExampleMissingError() {
	_, err := keyfunc.Standard(keyfunc.BasicUser())(post("/payments"))

	var missing keyfunc.MissingError
	if errors.As(err, &missing) {
		fmt.Printf("send a key in the %s %s\n", missing.In, missing.Name)
	}
	// Output: send a key in the header Idempotency-Key
}
