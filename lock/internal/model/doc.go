// Package model is a model of the protocol. Its tests walk every interleaving of two processes under classes of
// faults. The package comment of lock gives their result: see "What is checked".
package model
