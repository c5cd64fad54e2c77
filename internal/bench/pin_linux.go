package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// allowedCores returns the cores that this process may run on.
func allowedCores() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	var cores []int
	for core := 0; len(cores) < set.Count(); core++ {
		if set.IsSet(core) {
			cores = append(cores, core)
		}
	}
	return cores, nil
}

// pin lets every thread of the process run on that core only. Threads that it starts later inherit that.
func pin(pid, core int) error {
	var set unix.CPUSet
	set.Set(core)
	pinned := map[string]bool{}
	for {
		// A thread that was not yet pinned may have started another one meanwhile.
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return err
		}
		before := len(pinned)
		for _, thread := range threads {
			if pinned[thread.Name()] {
				continue
			}
			pinned[thread.Name()] = true
			tid, err := strconv.Atoi(thread.Name())
			if err != nil {
				return err
			}
			if err := unix.SchedSetaffinity(tid, &set); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("sched_setaffinity: %w", err)
			}
		}
		if len(pinned) == before {
			return nil
		}
	}
}

func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
