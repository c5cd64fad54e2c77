//go:build !race

package middleware_test

const raced = false
