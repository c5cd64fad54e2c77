package onceclient

import (
	"crypto/tls"
	"errors"
	"strings"
)

// unsendableErrors are the beginnings of http.Transport's errors for a request that it rejects before it connects.
// There are no exported values for them. Errors about a response also contain words such as "invalid header", but never
// begin like this.
var unsendableErrors = []string{
	"unsupported protocol scheme", "http: nil Request.URL", "http: no Host in request URL",
	"net/http: invalid header ", "net/http: invalid trailer ",
}

// errGetBody is the error of a request whose body cannot be sent again.
var errGetBody = errors.New("onceclient: GetBody")

// unsendable reports whether err, which is the base's or an errGetBody, means that the request cannot be sent. It may have
// been: http.Transport sends it again if a connection that it has used before breaks, see call.maybeSent.
func unsendable(err error) bool {
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) || errors.Is(err, errGetBody) {
		return true
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	for _, start := range unsendableErrors {
		if strings.HasPrefix(err.Error(), start) {
			return true
		}
	}
	return false
}
