// Command defects serves a payments API that keeps the promise of the Idempotency-Key header, or one that breaks it in a
// single way. The tests of oncecheck use it. Run it to see what oncecheck says about a defect:
//
//	go run ./defects                  # lists the defects, and the checks that they fail
//	go run ./defects replay-empty     # serves one, and prints how to ask it
package main

import (
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		for _, d := range defects {
			fmt.Println(d.name, strings.Fields(d.fails))
		}
		return
	}
	d, ok := find(os.Args[1])
	if !ok {
		log.Fatalf("there is no defect %q; without arguments they are listed", os.Args[1])
	}
	s := startSite(d)
	defer s.close()
	fmt.Print("go run .")
	for _, arg := range s.questions() {
		fmt.Printf(" '%s'", strings.ReplaceAll(arg, "'", `'\''`))
	}
	fmt.Println()
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, os.Interrupt)
	<-stopped
}
