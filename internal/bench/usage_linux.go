package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ownCPU returns how long this process has been on a core.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// residentBytes returns how much memory this process occupies.
func residentBytes() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 1 {
		pages, _ := strconv.ParseInt(fields[1], 10, 64) // 0 if the kernel says something else
		return pages * int64(os.Getpagesize())
	}
	return 0
}
