package profile_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/problem"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/profile"
)

var update = flag.Bool("update", false, "write docs/openapi")

type object = map[string]any

// api is what a file of docs/openapi describes.
type api struct {
	file     string
	title    string
	media    string // of an error
	required bool   // the key
	echoes   bool
	schema   object // of an error
	// example returns the status and the body of a problem.
	example func(middleware.Problem) (int, []byte)
}

func text(description string) object { return object{"type": "string", "description": description} }

func members(required []string, properties object) object {
	return object{"type": "object", "required": required, "properties": properties}
}

// apis returns package middleware's default and the profiles.
func apis() []api {
	byProfile := func(p profile.Profile) func(middleware.Problem) (int, []byte) {
		return func(problem middleware.Problem) (int, []byte) {
			name := strings.TrimPrefix(problem.Type, "urn:onceguard:problem:")
			for i := range profiles {
				if profiles[i].String() == p.String() {
					problem.Status = profile.Answers()[name][i].Status
				}
			}
			w := httptest.NewRecorder()
			profile.Refuse(p, w, httptest.NewRequest(http.MethodPost, "/", nil), problem)
			return w.Code, w.Body.Bytes()
		}
	}
	kind, code, message := text("The kind of error."), text("What has happened."), text("For developers.")
	return []api{
		{
			"default.json", "draft-ietf-httpapi-idempotency-key-header-07", "application/problem+json", false, false,
			members([]string{"type", "title", "status", "detail"}, object{
				"type": text("urn:onceguard:problem: and a name."), "title": text("The same for all problems of a type."),
				"status": object{"type": "integer"}, "detail": text("What the client may do."),
				"instance":        text("urn:onceguard:key: and a hash, by which an operator finds the key."),
				"original_status": object{"type": "integer", "description": "Of a response that was not stored."},
				"first_running":   object{"type": "boolean", "description": "Of key-reused: the request that has the key is still running."},
				"first_ended":     object{"type": "string", "format": "date-time", "description": "Of key-reused: when that request ended."},
			}),
			func(p middleware.Problem) (int, []byte) { b, _ := json.Marshal(p); return p.Status, b },
		},
		{
			"acp.json", profile.ACP().String(), "application/json", true, true,
			members([]string{"type", "code", "message"}, object{"type": kind, "code": code, "message": message}), byProfile(profile.ACP()),
		},
		{
			"ucp.json", profile.UCP().String(), "application/json", false, false,
			members([]string{"code", "content"}, object{"code": code, "content": message}), byProfile(profile.UCP()),
		},
		{
			"stripe.json", profile.Stripe().String(), "application/json", false, true,
			members([]string{"error"}, object{
				"error": members([]string{"type", "message"}, object{"type": kind, "code": code, "message": message}),
			}), byProfile(profile.Stripe()),
		},
	}
}

// document returns the OpenAPI document of an API.
func (a *api) document() object {
	responses, retried := object{}, map[string]bool{}
	for kind := run.InFlight; kind < run.KindCount; kind++ {
		p := problem.New(kind)
		typeName := strings.TrimPrefix(p.Type, problem.TypePrefix)
		status, body := a.example(middleware.Problem{Type: p.Type, Title: p.Title, Status: p.Status, Detail: p.Detail})
		name := strconv.Itoa(status)
		if responses[name] == nil {
			responses[name] = object{
				"description": http.StatusText(status) + ": the idempotency key, or the request that it names, is refused.",
				"content": object{a.media: object{
					"schema": object{"$ref": "#/components/schemas/Error"}, "examples": object{},
				}},
			}
		}
		retried[name] = retried[name] || p.Retryable
		examples := responses[name].(object)["content"].(object)[a.media].(object)["examples"].(object)
		if examples[typeName] == nil { // the first kind of a type has the detail that is most common
			examples[typeName] = object{"summary": p.Title, "value": json.RawMessage(body)}
		}
	}
	for name, response := range responses {
		response.(object)["headers"] = a.headersOf(retried[name])
	}
	return object{
		"openapi": "3.1.0",
		"info":    object{"title": "Idempotent requests: " + a.title, "version": "1"},
		"components": object{
			"parameters": object{"IdempotencyKey": a.parameter()}, "headers": a.headers(), "responses": responses,
			"schemas": object{"Error": a.schema},
		},
	}
}

func (a *api) parameter() object {
	schema := object{"type": "string", "minLength": 1, "maxLength": 255}
	if a.media == "application/problem+json" {
		schema = object{"type": "string", "minLength": 1} // quotes, escapes and parameters are not part of the key
	}
	return object{
		"name": "Idempotency-Key", "in": "header", "required": a.required, "schema": schema, "example": "8e03978e-40d5-43e8-bc93-6894a57f9324",
		"description": "Names what is to happen once. Every retry of a request repeats it. At most 255 printable ASCII characters.",
	}
}

func (a *api) headers() object {
	of := func(schema object, description string) object {
		return object{"schema": schema, "description": description}
	}
	list := object{
		"Idempotent-Replayed": of(object{"type": "string", "const": "true"}, "The response was stored earlier, and this request did not run."),
		"Retry-After":         of(object{"type": "integer", "minimum": 1}, "Seconds after which the same request may succeed."),
		"X-Should-Retry":      of(object{"type": "string", "enum": []string{"true", "false"}}, "Whether the same request may succeed later."),
	}
	if a.echoes {
		list["Idempotency-Key"] = of(object{"type": "string"}, "The key of this request.")
	}
	return list
}

// headersOf returns the headers of an error.
func (a *api) headersOf(retried bool) object {
	ref := func(name string) object { return object{"$ref": "#/components/headers/" + name} }
	list := object{"X-Should-Retry": ref("X-Should-Retry")}
	if retried {
		list["Retry-After"] = ref("Retry-After")
	}
	if a.echoes {
		list["Idempotency-Key"] = ref("Idempotency-Key")
	}
	return list
}

// The files of docs/openapi are what the table of problems says. With -update they are written.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	for _, a := range apis() {
		want, err := json.MarshalIndent(a.document(), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, '\n')
		name := filepath.Join("../docs/openapi", a.file)
		if *update {
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(name)
		if err != nil || string(got) != string(want) {
			t.Errorf("%s is not up to date (%v): go test ./profile -run TestOpenAPI -update", a.file, err)
		}
		var document any
		if err := json.Unmarshal(got, &document); err != nil {
			t.Fatal(err)
		}
		refs := 0
		walk(document, func(ref string) {
			refs++
			if at(document, ref) == nil {
				t.Errorf("%s: %s leads to nothing", a.file, ref)
			}
		})
		examples := 0
		for status, response := range at(document, "#/components/responses").(object) {
			for name := range response.(object)["content"].(object)[a.media].(object)["examples"].(object) {
				examples++
				if fmt.Sprint(defaults()[name]) != status && name != "key-reused" {
					t.Errorf("%s: %s has the status %s", a.file, name, status)
				}
			}
		}
		if examples != len(defaults()) || refs < 10 {
			t.Errorf("%s: %d problems and %d references, want %d problems", a.file, examples, refs, len(defaults()))
		}
	}
}

// walk calls f for each $ref in v.
func walk(v any, f func(ref string)) {
	switch v := v.(type) {
	case object:
		for name, inside := range v {
			if ref, ok := inside.(string); ok && name == "$ref" {
				f(ref)
			}
			walk(inside, f)
		}
	case []any:
		for _, inside := range v {
			walk(inside, f)
		}
	}
}

// at returns what a reference inside a document leads to.
func at(document any, ref string) any {
	for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		inside, _ := document.(object)
		document = inside[name]
	}
	return document
}
