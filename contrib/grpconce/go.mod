module github.com/onceguard/onceguard/contrib/grpconce

go 1.25.0

replace (
	github.com/onceguard/onceguard => ../..
	github.com/onceguard/onceguard/onceclient => ../../onceclient
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/onceguard/onceguard v0.1.0
	github.com/onceguard/onceguard/onceclient v0.1.0
	github.com/redis/go-redis/v9 v9.22.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250218202821-56aae31c358a
	google.golang.org/grpc v1.72.2
	google.golang.org/protobuf v1.36.5
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.uber.org/goleak v0.10.0 // indirect
	golang.org/x/net v0.35.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
	golang.org/x/text v0.22.0 // indirect
)
