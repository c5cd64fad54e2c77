package sqljournal_test

import (
	"testing"

	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }
