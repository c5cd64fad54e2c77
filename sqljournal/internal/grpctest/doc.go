// Package grpctest tests calls of grpc-go under a journal, and with the observers of contrib. It is a module of its own so
// that users of sqljournal and of contrib/grpconce do not download what it needs.
package grpctest
