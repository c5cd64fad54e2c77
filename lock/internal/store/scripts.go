package store

// The Lua scripts. Each is in a file of its own, whose head describes what it does, takes and returns. Positions in
// redis.call are strings, because Lua would format a number at each call.

import (
	"embed"

	"github.com/onceguard/onceguard/lock/internal/pipeline"
)

//go:embed lua
var sources embed.FS

var (
	claimScript    = script("claim")
	confirmScript  = script("confirm")
	extendScript   = script("extend")
	resumeScript   = script("resume")
	settleScript   = script("settle")
	releaseScript  = script("release")
	inspectScript  = script("inspect")
	overrideScript = script("override")
)

func script(name string) pipeline.Script {
	source, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return pipeline.NewScript(string(source))
}
