package lock_test

import (
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Main(m,
		redistest.Program{Name: "adder", Run: adder},
		redistest.Program{Name: "holder", Run: holder},
		redistest.Program{Name: "claimer", Run: claimer},
	)
}
