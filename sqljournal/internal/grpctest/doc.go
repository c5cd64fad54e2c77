// Package grpctest tests calls of grpc-go under a journal, in a module of its own so that users of sqljournal do not
// download gRPC.
package grpctest
