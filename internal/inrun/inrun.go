// Package inrun has the key under which a context carries the run with a journal that it belongs to.
package inrun

// Key is the key of a context's value. Package journal says which methods the value has; it is nil in a run without a
// journal inside of one that has one.
type Key struct{}
