package middleware_test

import (
	"encoding/hex"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/middleware"
)

// A fingerprint is compared with those that are stored: what is written today must be what was written before.
func TestFingerprintFormat(t *testing.T) {
	t.Parallel()
	const form = "multipart/form-data; boundary="
	for _, test := range []struct{ name, method, target, contentType, body, want string }{
		{
			"JSON", "POST", "/payments?a=1", "application/json; charset=utf-8", payment,
			"013d9ef1b6cb8fb6e08ef989cc5160486f3dc0409075feab927f3b7952ce71ab7f",
		},
		{
			"nothing", "PATCH", "/", "", "",
			"013d1f958e115503a1c11ae3b34a95da270f7edd2aa613ae7f9facb3b7ff1f5573",
		},
		{
			"absolute", "POST", "http://example.com/a%2Fb?x", "text/plain", "x",
			"0102567931409f9aad2f9122cd807aea35622ce85ee5fb852794d08a685d12b25c",
		},
		{
			"long path", "POST", "/" + strings.Repeat("p", 5000), "text/plain", strings.Repeat("x", 70000),
			"018f57ec7ac998569b3f83cf9239c228ed0131c9bf0610eae85d46eeb5a954481a",
		},
		{
			"multipart", "POST", "/f", form + "b", "--b\r\nA: 1\r\nB: 2\r\n\r\nx\r\n--b--\r\n",
			"0196ecadb681a5b5d65d52568254d2b313c2b4b57aa4a07b3d5a13b9b7d9636fd6",
		},
		{
			"multipart that does not parse", "POST", "/f", form + "c", "--b\r\nA: 1\r\n\r\nx\r\n--b--\r\n",
			"0182c3ed41aa065883865b21feb282890c1a9a6ce1416c02bd09bf70e8d550ee93",
		},
	} {
		r := httptest.NewRequest(test.method, test.target, nil)
		r.Header.Set("Content-Type", test.contentType)
		if got := hex.EncodeToString(middleware.Fingerprint(r, []byte(test.body))); got != test.want {
			t.Errorf("%s: got  %s\nwant %s", test.name, got, test.want)
		}
	}
}
