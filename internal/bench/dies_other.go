//go:build !linux

// Servers stay behind where the system cannot end them with this process, if it is killed.

package main

import "syscall"

func diesWithParent() *syscall.SysProcAttr { return nil }
