package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// oncecheck is the tool, built from this tree.
var oncecheck string

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		// The tests wait more than they work.
		_ = flag.Set("test.parallel", "40")
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

// ask runs oncecheck and returns its verdicts. It fails the test without a report.
func ask(t *testing.T, args ...string) []verdict {
	t.Helper()
	stdout, stderr := runOncecheck(append([]string{"-json", "-strict"}, args...)...)
	var report struct{ Checks []verdict }
	if err := json.Unmarshal(stdout, &report); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	return report.Checks
}

func runOncecheck(args ...string) (stdout []byte, stderr string) {
	var errs strings.Builder
	cmd := exec.Command(oncecheck, args...)
	cmd.Stderr = &errs
	// The exit codes are the test of oncecheck itself.
	stdout, _ = cmd.Output()
	return stdout, errs.String()
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
