module github.com/onceguard/onceguard

go 1.25.0

toolchain go1.25.14 // for our tests: before 1.25.1, one with testing/synctest may hang (golang/go#75134)

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/anishathalye/porcupine v0.1.4
	github.com/go-chi/chi/v5 v5.2.3
	github.com/google/uuid v1.6.0
	github.com/redis/go-redis/v9 v9.22.0
	go.uber.org/goleak v0.10.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
)
