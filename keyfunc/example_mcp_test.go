package keyfunc_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/onceguard/onceguard/keyfunc"
)

// An operator looks for a key whose scope is a tenant and a user.
func ExampleComposedKey() {
	tenant := func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil }
	key := keyfunc.Standard(keyfunc.Compose(tenant, keyfunc.BasicUser()))

	r := httptest.NewRequest(http.MethodPost, "/payments", nil)
	r.Header.Set("X-Tenant", "acme")
	r.Header.Set("Idempotency-Key", "8e03978e")
	r.SetBasicAuth("ann", "")
	got, _ := key(r)
	fmt.Println(got == keyfunc.StandardKey(keyfunc.ComposedKey("acme", "ann"), "POST", "/payments", "8e03978e"))
	// Output: true
}

// call returns a call of an agent's tool, as MCP sends it over HTTP.
func call(id int, tool, meta string) *http.Request {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"meta":%s,"id":"cs_1"}}}`, id, tool, meta)
	r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
	r.SetBasicAuth("agent", "")
	return r
}

// ACP's binding to MCP has the key in a member of meta. All tools have one path, so the tool belongs to the key.
//
// With this key the middleware answers an HTTP request that is sent again as it was. A client that calls the tool again
// gives the call another JSON-RPC id, and the stored response has the first one's. For such a client use once.Do inside the
// tool.
func ExampleJSON_mcpOfACP() {
	tool, meta := keyfunc.JSON("/params/name"), keyfunc.JSON("/params/arguments/meta/idempotency_key")
	key := keyfunc.Scoped(keyfunc.Compose(meta, tool), keyfunc.BasicUser())

	first, _ := key(call(1, "complete_checkout_session", `{"idempotency_key":"8e03978e"}`))
	retry, _ := key(call(1, "complete_checkout_session", `{"idempotency_key":"8e03978e"}`))
	cancel, _ := key(call(2, "cancel_checkout_session", `{"idempotency_key":"8e03978e"}`))
	fmt.Println(first == retry, first == cancel)
	_, err := key(call(3, "get_checkout_session", `{}`))
	fmt.Println(err)
	// Output:
	// true false
	// keyfunc: the request has no key in the JSON value /params/arguments/meta/idempotency_key
}
