//go:build !linux

package main

import (
	"errors"
	"syscall"
)

func allowedCores() ([]int, error) { return nil, errors.ErrUnsupported }

func pin(int, int) error { return errors.ErrUnsupported }

func dieWithParent() *syscall.SysProcAttr { return nil }
