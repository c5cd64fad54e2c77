package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// placement says where bench and Redis run.
type placement struct {
	bench, redis int // cores
	free         bool
}

// place says where they run for that many callers.
func place(callers int, cores []int) placement {
	switch {
	case len(cores) == 0:
		return placement{free: true}
	case callers == 1:
		return placement{bench: cores[0], redis: cores[0]}
	}
	return placement{bench: cores[0], redis: cores[len(cores)-1]}
}

func (p placement) String() string {
	switch {
	case p.free:
		return "not pinned"
	case p.bench == p.redis:
		return fmt.Sprintf("together on core %d", p.bench)
	}
	return fmt.Sprintf("bench on core %d, Redis on core %d", p.bench, p.redis)
}

// settle brings bench and the Redis process to their places.
func settle(callers, redisPID int, cores []int) (placement, error) {
	p := place(callers, cores)
	if p.free {
		return p, nil
	}
	runtime.GOMAXPROCS(1)
	return p, errors.Join(pin(os.Getpid(), p.bench), pin(redisPID, p.redis))
}
