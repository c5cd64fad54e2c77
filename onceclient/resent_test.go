package onceclient_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onceguard/onceguard/onceclient"
)

// A base that sends the request again by itself, on a new connection, may meet an untrusted certificate there. The request
// was sent before that.
func TestUntrustedAfterTheRequestWasSent(t *testing.T) {
	t.Parallel()
	var orders, connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/orders" {
			orders.Add(1)
			panic(http.ErrAbortHandler) // the response is lost
		}
	}))
	server.Config.ErrorLog = discard()
	server.StartTLS()
	defer server.Close()
	trusted := server.Client().Transport.(*http.Transport)
	trusted.TLSClientConfig.VerifyConnection = func(tls.ConnectionState) error {
		if connections.Add(1) == 1 {
			return nil
		}
		return &tls.CertificateVerificationError{Err: errNetwork}
	}
	client := &http.Client{Transport: onceclient.New(trusted)}
	if _, _, err := do(t, client, post(t, t.Context(), server.URL, nil)); err != nil { // makes a connection to use again
		t.Fatal(err)
	}
	_, _, err := do(t, client, post(t, t.Context(), server.URL+"/orders", strings.NewReader("book")))
	if orders.Load() != 1 {
		t.Fatalf("%d orders", orders.Load())
	}
	gaveUp(t, err)
}
