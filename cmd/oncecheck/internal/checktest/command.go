package checktest

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

const name = "fetch"

// Command returns a line for sh that sends a request to the URL and prints the body of the response. Without a response, or
// with a status of 400 and more, it ends with 1. It starts this program again, whose main function must begin with [Main].
func Command(method, url string) string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return quote(self) + " " + name + " " + method + " " + quote(url)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Main sends the request and exits if a [Command] has started this process. Otherwise it does nothing.
func Main() {
	if len(os.Args) != 4 || os.Args[1] != name {
		return
	}
	if err := fetch(os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func fetch(method, url string) error {
	request, err := http.NewRequest(method, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(os.Stdout, response.Body); err != nil {
		return err
	}
	if response.StatusCode >= 400 {
		return fmt.Errorf("%s %s: %s", method, url, response.Status)
	}
	return nil
}
