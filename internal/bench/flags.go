// The parsing of flags, which all commands share.

package main

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
)

// parseFlags parses the arguments of s. valid reports whether the values make sense. Every error but [flag.ErrHelp] comes
// with the usage.
func parseFlags(flags *flag.FlagSet, s session, valid func() bool) error {
	flags.SetOutput(s.progress)
	if err := flags.Parse(s.args); err != nil {
		return err
	}
	if flags.NArg() > 0 || !valid() {
		flags.Usage()
		return errors.New("takes flags only, and each must leave something to measure")
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
