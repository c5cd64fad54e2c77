package onceguard_test

import (
	"os"
	"strings"
	"testing"
)

// The README's code is that of the Examples, line by line.
func TestReadmeIsCompiled(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile("middleware/example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	compiled := map[string]bool{}
	for line := range strings.Lines(string(examples)) {
		compiled[strings.TrimSpace(line)] = true
	}
	blocks := strings.Split(string(readme), "```go\n")[1:]
	if len(blocks) != 2 {
		t.Errorf("%d blocks of Go, want 2", len(blocks))
	}
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		for line := range strings.Lines(code) {
			if line = strings.TrimSpace(line); !compiled[line] {
				t.Errorf("not in the Examples: %s", line)
			}
		}
	}
}
