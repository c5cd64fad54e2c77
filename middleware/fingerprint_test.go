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
			"018b72792a9e3a87e236fec718486081d1e3db04fb4cf851879c53792e5b829c72",
		},
		{
			"nothing", "PATCH", "/", "", "",
			"016dd9a052981fa68947f9c3d9674ff1100a3fa529bae59fd37194dc35b97307c4",
		},
		{
			"absolute", "POST", "http://example.com/a%2Fb?x", "text/plain", "x",
			"01771a005d791bb8cb43f5293ce20523d321a7ed7fee9142851b4e03248683d856",
		},
		{
			"long path", "POST", "/" + strings.Repeat("p", 5000), "text/plain", strings.Repeat("x", 70000),
			"01cf3006045d4ff9dc24bff5cf2c69d373152329d3f478294b66c671e7fc23d4be",
		},
		{
			"multipart", "POST", "/f", form + "b", "--b\r\nA: 1\r\nB: 2\r\n\r\nx\r\n--b--\r\n",
			"0107667a6671404901bbb15f69fea1f1109076751f32dcb0363f90b9de2dad6500",
		},
		{
			"multipart that does not parse", "POST", "/f", form + "c", "--b\r\nA: 1\r\n\r\nx\r\n--b--\r\n",
			"01e8b34881b1cd9d40b28be1d2bde5c501723486a2cdabab09cec240e17771bcec",
		},
	} {
		r := httptest.NewRequest(test.method, test.target, nil)
		r.Header.Set("Content-Type", test.contentType)
		if got := hex.EncodeToString(middleware.Fingerprint(r, []byte(test.body))); got != test.want {
			t.Errorf("%s: got  %s\nwant %s", test.name, got, test.want)
		}
	}
}
