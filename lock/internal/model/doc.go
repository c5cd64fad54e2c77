// Package model has a model of the protocol: its tests walk every interleaving of two processes under classes of faults.
// What they find is in the package comment of lock, "What is checked".
package model
