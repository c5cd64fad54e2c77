package pipeline

import "github.com/redis/go-redis/v9"

// Script is a Lua script, which Call.Eval runs.
type Script struct{ byDigest, bySource []any } // the first arguments: EVALSHA and the digest, EVAL and the source

// NewScript returns the Script with that source.
func NewScript(source string) Script {
	return Script{byDigest: []any{"evalsha", redis.NewScript(source).Hash()}, bySource: []any{"eval", source}}
}
