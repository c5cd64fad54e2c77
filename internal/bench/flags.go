package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// flagSet is that of one command.
type flagSet struct{ *flag.FlagSet }

func newFlags(name string, out io.Writer) flagSet {
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.SetOutput(out)
	return flagSet{set}
}

// parse returns [flag.ErrHelp] or an errFlags, and then has said why. Sensible tells whether the values make sense.
func (f flagSet) parse(args []string, sensible func() bool) error {
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return errFlags
	case f.NArg() > 0 || !sensible():
		fmt.Fprintf(f.Output(), "%s: takes flags only, and no number or time that leaves nothing to measure\n", f.Name())
		f.Usage()
		return errFlags
	}
	return nil
}

// numbers returns those of a list with commas. None is less than least.
func numbers(list string, least int) ([]int, error) {
	var all []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < least {
			return nil, fmt.Errorf("%q is no number from %d on", text, least)
		}
		all = append(all, n)
	}
	return all, nil
}
