// The parsing of flags, which all commands share.

package main

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
)

// errFlags says that the flags are wrong. The reason has been printed.
var errFlags = errors.New("wrong flags")

// parseFlags returns [flag.ErrHelp] or errFlags. valid reports whether the values make sense.
func parseFlags(flags *flag.FlagSet, s session, valid func() bool) error {
	flags.SetOutput(s.progress)
	err := flags.Parse(s.args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return errFlags
	case flags.NArg() > 0 || !valid():
		fmt.Fprintf(s.progress, "%s: takes flags only, and each must leave something to measure\n", flags.Name())
		flags.Usage()
		return errFlags
	}
	return nil
}

// intsFlag defines a flag that is a list of numbers with commas, none less than least. list has the default.
func intsFlag(flags *flag.FlagSet, list *[]int, name string, least int, usage string) {
	flags.Func(name, fmt.Sprintf("%s (default %v)", usage, *list), func(text string) error {
		*list = nil
		for field := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(field)
			if err != nil || n < least {
				return fmt.Errorf("%q is not a number from %d on", field, least)
			}
			*list = append(*list, n)
		}
		return nil
	})
}
