package redistest

import (
	"fmt"
	"io"
	"os"
	"slices"
)

// Program is what a test binary does instead of running its tests when [Run]
// starts it: a client that a test can pause, or kill without a word.
type Program struct {
	Name string

	// Run gets the args of [Run], and speaks with the test in lines: in is
	// what [Process.Send] sends, and ends with the [Process.Wait] of the
	// test; what it writes to out is for [Process.Line]. An error makes the
	// process exit with 1, and goes to standard error.
	Run func(args []string, in io.Reader, out io.Writer) error
}

// programEnv names the program in the environment of a process.
const programEnv = "REDISTEST_PROGRAM"

// execute runs the program of that name, and returns the exit code of the process.
func execute(programs []Program, name string) int {
	i := slices.IndexFunc(programs, func(p Program) bool { return p.Name == name })
	if i < 0 {
		fmt.Fprintf(os.Stderr, "redistest: Main was given no program %q\n", name)
		return 1
	}
	if err := programs[i].Run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
