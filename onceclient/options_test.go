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
	for name, options := range map[string][]func(){
		"WithLimit":      {func() { onceclient.WithLimit(0) }, func() { onceclient.WithLimit(-time.Second) }},
		"WithTryTimeout": {func() { onceclient.WithTryTimeout(0) }},
		"WithBackoff":    {func() { onceclient.WithBackoff(0, 1) }, func() { onceclient.WithBackoff(2, 1) }},
		"WithMaxBody":    {func() { onceclient.WithMaxBody(-1) }},
		"WithMethods":    {func() { onceclient.WithMethods() }, func() { onceclient.WithMethods("POST", "PO ST") }},
		"WithHeader":     {func() { onceclient.WithHeader("") }, func() { onceclient.WithHeader("Schlüssel") }},
		"WithObserver":   {func() { onceclient.WithObserver(nil) }},
	} {
		for _, option := range options {
			func() {
				defer func() {
					if text, _ := recover().(string); !strings.HasPrefix(text, "onceclient."+name+": ") {
						t.Errorf("%s: panic %q", name, text)
					}
				}()
				option()
			}()
		}
	}
	onceclient.New(nil, onceclient.WithMaxBody(0), onceclient.WithBackoff(1, 1), onceclient.WithHeader("X-Key_1"), onceclient.WithMethods("M-SEARCH"))
}
