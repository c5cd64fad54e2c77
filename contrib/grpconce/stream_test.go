package grpconce_test

import (
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/onceguard/onceguard/contrib/grpconce"
	"github.com/onceguard/onceguard/internal/redistest"
)

// A stream passes untouched through a server and a client that have the interceptors: each call with the same key runs,
// each message goes out at once, and nothing is stored or observed.
func TestStreamsPass(t *testing.T) {
	for name, opts := range map[string][]grpconce.Option{
		"every method": nil, "named and required": {grpconce.WithMethods(payMethod, streamMethod), grpconce.WithRequired()},
	} {
		t.Run(name, func(t *testing.T) {
			b := redistest.Mini(t)
			var keys []int // how many keys each call came with
			s := serve(t, b, numbering(), settings{
				unary:  opts,
				client: []grpc.DialOption{grpc.WithUnaryInterceptor(grpconce.UnaryClient(payMethod, streamMethod))},
				stream: func(_ any, stream grpc.ServerStream) error {
					keys = append(keys, len(metadata.ValueFromIncomingContext(stream.Context(), "idempotency-key")))
					for {
						in := new(structpb.Struct)
						if err := stream.RecvMsg(in); err == io.EOF {
							return nil
						} else if err != nil {
							return err
						}
						if err := stream.SendMsg(in); err != nil {
							return err
						}
					}
				},
			})
			for range 2 {
				s.exchange("idempotency-key", "k1")
			}
			s.exchange()
			if len(keys) != 3 || keys[0] != 1 || keys[1] != 1 || keys[2] != 0 {
				t.Errorf("the calls came with %v keys, want 1, 1, 0", keys)
			}
			if stored := b.Keys(t); len(stored) != 0 {
				t.Errorf("Redis has %q", stored)
			}
			if len(s.events) != 0 {
				t.Errorf("%d events", len(s.events))
			}
		})
	}
}

// exchange makes one call of the stream, which gets each message back before it sends the next one.
func (s *service) exchange(pairs ...string) {
	s.t.Helper()
	ctx := metadata.NewOutgoingContext(s.t.Context(), metadata.Pairs(append(pairs, "user", "ann")...))
	stream, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamMethod)
	if err != nil {
		s.t.Fatal(err)
	}
	for n := range int64(3) {
		got := new(structpb.Struct)
		if err := stream.SendMsg(payment(n)); err != nil {
			s.t.Fatal(err)
		}
		if err := stream.RecvMsg(got); err != nil || got.Fields["payment"].GetNumberValue() != float64(n) {
			s.t.Fatalf("message %d: %v, %v", n, got, err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		s.t.Fatal(err)
	}
	if err := stream.RecvMsg(new(structpb.Struct)); err != io.EOF {
		s.t.Errorf("at the end: %v, want EOF", err)
	}
	if header, err := stream.Header(); err != nil || len(header.Get("idempotent-replayed")) != 0 {
		s.t.Errorf("the header is %v, %v", header, err)
	}
}
