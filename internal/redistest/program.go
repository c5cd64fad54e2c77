package redistest

import (
	"fmt"
	"io"
	"os"
	"slices"
)

// Program is what a test binary runs instead of its tests when [Run] starts it: a client that a test can pause or kill.
type Program struct {
	Name string

	// Run gets the args of [Run]. It reads from in the lines of [Process.Send], until the test calls [Process.Wait],
	// and writes to out the lines for [Process.Line]. An error goes to standard error, and the process exits with 1.
	Run func(args []string, in io.Reader, out io.Writer) error
}

// programEnv is the environment variable that names the program of a process.
const programEnv = "REDISTEST_PROGRAM"

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
