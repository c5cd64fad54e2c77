package store

// The Lua scripts. Each is in a file of its own, whose head describes what it does, takes and returns. Positions in
// redis.call are strings, because Lua would format a number at each call.

import (
	_ "embed" // the scripts

	"github.com/onceguard/onceguard/lock/internal/pipeline"
)

var (
	//go:embed lua/claim.lua
	claimSource string
	//go:embed lua/confirm.lua
	confirmSource string
	//go:embed lua/extend.lua
	extendSource string
	//go:embed lua/settle.lua
	settleSource string
	//go:embed lua/release.lua
	releaseSource string
	//go:embed lua/inspect.lua
	inspectSource string
	//go:embed lua/override.lua
	overrideSource string

	claimScript    = pipeline.NewScript(claimSource)
	confirmScript  = pipeline.NewScript(confirmSource)
	extendScript   = pipeline.NewScript(extendSource)
	settleScript   = pipeline.NewScript(settleSource)
	releaseScript  = pipeline.NewScript(releaseSource)
	inspectScript  = pipeline.NewScript(inspectSource)
	overrideScript = pipeline.NewScript(overrideSource)
)
