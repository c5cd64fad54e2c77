package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/sqljournal"
)

// The file of the -db flag is the one that is opened, whether its path is relative or absolute.
func TestSQLitePath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("sub", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"payments.db", "sub/payments.db", "./x.db", ":memory:", "a b?c#d%41&e.db", filepath.Join(dir, "absolute.db"),
	} {
		d, err := openDatabase(t.Context(), "sqlite:"+path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if err := d.close(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: the file is not there: %v", path, err)
		}
	}
}

// With a setting that a journal does not work with, the program does not start: an intent journal would say that it has stored rows.
func TestSettingIsRefused(t *testing.T) {
	each(t, func(t *testing.T, db string) {
		if !strings.HasPrefix(db, "mysql:") {
			t.Skip("left out: no other database has such a setting")
		}
		d, err := openDatabase(t.Context(), db+"?autocommit=0")
		if err == nil {
			err = d.close()
		}
		if !errors.Is(err, sqljournal.ErrSetting) {
			t.Errorf("got %v, want %v", err, sqljournal.ErrSetting)
		}
	})
}
