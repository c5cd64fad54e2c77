package pipeline

import "github.com/redis/go-redis/v9"

// Script is a Lua script, as the first arguments of the commands that run it. (Positions in keys are texts in our scripts,
// as Redis wants them: a number would be printed for each call.)
type Script struct{ byDigest, bySource []any }

// NewScript returns a Script. The server is told its source when it does not know its digest.
func NewScript(source string) Script {
	return Script{byDigest: []any{"evalsha", redis.NewScript(source).Hash()}, bySource: []any{"eval", source}}
}
