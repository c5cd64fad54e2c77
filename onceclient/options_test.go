package onceclient_test

import (
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/onceclient"
)

// A wrong value panics where it is written, and the panic names the option.
func TestWrongOptions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		option func()
	}{
		{"WithLimit", func() { onceclient.WithLimit(0) }},
		{"WithLimit", func() { onceclient.WithLimit(-time.Second) }},
		{"WithTryTimeout", func() { onceclient.WithTryTimeout(0) }},
		{"WithBackoff", func() { onceclient.WithBackoff(0, time.Second) }},
		{"WithBackoff", func() { onceclient.WithBackoff(2*time.Second, time.Second) }},
		{"WithMaxBody", func() { onceclient.WithMaxBody(-1) }},
		{"WithMethods", func() { onceclient.WithMethods() }},
		{"WithMethods", func() { onceclient.WithMethods("POST", "PO ST") }},
		{"WithHeader", func() { onceclient.WithHeader("") }},
		{"WithHeader", func() { onceclient.WithHeader("Schlüssel") }},
		{"WithObserver", func() { onceclient.WithObserver(nil) }},
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "onceclient."+test.name+": ") {
					t.Errorf("%s: panic %q", test.name, text)
				}
			}()
			test.option()
		}()
	}
	onceclient.New(nil, onceclient.WithMaxBody(0), onceclient.WithBackoff(1, 1), onceclient.WithHeader("X-Key_1"), onceclient.WithMethods("M-SEARCH"))
}
