// Command peers asks onceguard and other middlewares, each in front of the same handler, what oncecheck asks, and prints
// a Markdown table. It needs redis-server and curl:
//
//	go run .              # the table: for each group of checks, how many held of those that could be asked
//	go run . -checks      # a row for each check that one of them does not hold
//	go run . -only fiber-redis -report   # what oncecheck says, failures with their exchanges
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/redis/go-redis/v9"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) == 6 && os.Args[1] == "serve" {
		log.Fatal(serve(os.Args[2], os.Args[3], os.Args[4], os.Args[5]))
	}
	checks := flag.Bool("checks", false, "a row for each check that one of them does not hold")
	report := flag.Bool("report", false, "print what oncecheck says instead of a table")
	only := flag.String("only", "", "the `name` of the contender to ask")
	flag.Parse()
	if err := run(*only, *checks, *report); err != nil {
		log.Fatal(err)
	}
}

// serve is the process of one instance of a contender.
func serve(name, addr, redisAddr, effectsFile string) error {
	c, err := find(name)
	if err != nil {
		return err
	}
	effects, err := os.OpenFile(effectsFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: redisAddr, ContextTimeoutEnabled: true})
	return c.serve(l, client, effects)
}

// run asks the contenders, or the one with that name, and prints the table.
func run(only string, checks, report bool) error {
	folder, err := os.MkdirTemp("", "peers")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	oncecheck := filepath.Join(folder, "oncecheck")
	build := exec.Command("go", "build", "-o", oncecheck, ".")
	build.Dir = "../../../cmd/oncecheck"
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	asked := contenders
	if only != "" {
		c, err := find(only)
		if err != nil {
			return err
		}
		asked = []contender{c}
	}
	var columns []column
	for _, c := range asked {
		output, err := ask(oncecheck, c, filepath.Join(folder, c.name), report)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if report {
			fmt.Printf("%s\n\n%s\n", c.name, output)
			continue
		}
		column, err := readColumn(c.name, output)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		columns = append(columns, column)
	}
	if report {
		return nil
	}
	return writeTable(os.Stdout, columns, checks)
}

// ask returns what oncecheck says of the contender: JSON, or its report.
func ask(oncecheck string, c contender, effects string, report bool) ([]byte, error) {
	s, err := startSite(c, effects)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	form := "-json"
	if report {
		form = "-verbose"
	}
	output, err := exec.Command(oncecheck, append([]string{form}, s.questions()...)...).Output()
	return output, unlessSomeFailed(err)
}

// unlessSomeFailed returns the error of oncecheck unless it says that some checks did not hold.
func unlessSomeFailed(err error) error {
	exit := new(exec.ExitError)
	switch {
	case !errors.As(err, &exit):
		return err
	case exit.ExitCode() == 1:
		return nil
	}
	return fmt.Errorf("oncecheck: %w: %s", err, exit.Stderr)
}
