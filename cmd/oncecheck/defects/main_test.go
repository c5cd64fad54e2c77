package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/checktest"
)

// oncecheck is the tool, built from this tree.
var oncecheck string

func TestMain(m *testing.M) {
	checktest.Main()
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "40") // the tests wait more than they work
	}
	os.Exit(runTests(m))
}

// runTests builds oncecheck and runs the tests with it.
func runTests(m *testing.M) int {
	folder, err := os.MkdirTemp("", "oncecheck")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	oncecheck = filepath.Join(folder, "oncecheck")
	if out, err := exec.Command("go", "build", "-o", oncecheck, "..").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v\n%s", err, out))
	}
	return m.Run()
}

// A verdict is what oncecheck says of a check.
type verdict struct {
	ID, Verdict, Sentence string
	Curl                  []string
}

// ask runs oncecheck and returns its verdicts. It fails the test if the server could not be asked, or if the exit status
// does not say whether all held.
func ask(t *testing.T, args ...string) []verdict {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(oncecheck, append([]string{"-json", "-strict"}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("oncecheck: %v\n%s", err, stderr.Bytes())
	}
	var report struct{ Checks []verdict }
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatalf("the report: %v\n%s", err, stdout.Bytes())
	}
	return report.Checks
}

// ids returns the ids of the checks with the verdict.
func ids(verdicts []verdict, which string) []string {
	var list []string
	for _, v := range verdicts {
		if v.Verdict == which {
			list = append(list, v.ID)
		}
	}
	return list
}
