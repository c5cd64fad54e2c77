// Package system_test tests the whole system in separate processes: servers that are killed under load, and the
// README's program.
package system_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Main(m, redistest.Program{Name: "payments-server", Run: servePayments}, redistest.Program{Name: "get", Run: get})
}

// get sends a GET to the URL that is its argument.
func get(args []string, _ io.Reader, out io.Writer) error {
	client := &http.Client{Timeout: patience}
	response, err := client.Get(args[0])
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(out, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", args[0], response.Status)
	}
	return nil
}

// patience bounds every wait. Only a failing test waits this long.
const patience = 20 * time.Second
