// Package grpctest tests calls of grpc-go under a journal, and with the observers of contrib. They are here so
// that users of sqljournal and of contrib/grpconce do not download what they need.
package grpctest
