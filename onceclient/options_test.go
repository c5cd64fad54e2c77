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
	tests := map[string][]func() onceclient.Option{
		"WithLimit":         {func() onceclient.Option { return onceclient.WithLimit(0) }, func() onceclient.Option { return onceclient.WithLimit(-time.Second) }},
		"WithTryTimeout":    {func() onceclient.Option { return onceclient.WithTryTimeout(0) }},
		"WithMaxRetryAfter": {func() onceclient.Option { return onceclient.WithMaxRetryAfter(0) }},
		"WithBackoff": {
			func() onceclient.Option { return onceclient.WithBackoff(0, time.Second) },
			func() onceclient.Option { return onceclient.WithBackoff(2*time.Second, time.Second) },
		},
		"WithMaxBody":     {func() onceclient.Option { return onceclient.WithMaxBody(-1) }},
		"WithMaxResponse": {func() onceclient.Option { return onceclient.WithMaxResponse(-1) }},
		"WithMethods": {
			func() onceclient.Option { return onceclient.WithMethods() },
			func() onceclient.Option { return onceclient.WithMethods("POST", "") },
			func() onceclient.Option { return onceclient.WithMethods("PO ST") },
		},
		"WithHeader": {
			func() onceclient.Option { return onceclient.WithHeader("") },
			func() onceclient.Option { return onceclient.WithHeader("Key:") },
			func() onceclient.Option { return onceclient.WithHeader("Schlüssel") },
		},
		"WithObserver": {func() onceclient.Option { return onceclient.WithObserver(nil) }},
	}
	for name, makers := range tests {
		for i, maker := range makers {
			func() {
				defer func() {
					if text, _ := recover().(string); !strings.HasPrefix(text, "onceclient."+name+": ") {
						t.Errorf("%s, case %d: panic %q", name, i+1, text)
					}
				}()
				maker()
			}()
		}
	}
	onceclient.New(nil, onceclient.WithMaxBody(0), onceclient.WithBackoff(1, 1), onceclient.WithHeader("X-Key_1"), onceclient.WithMethods("M-SEARCH"))
}
