package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// meter reads how long bench and Redis were on a core.
type meter struct {
	bench time.Duration
	redis float64 // seconds
	err   error
}

func (m *meter) begin(ctx context.Context, s store) {
	m.redis, m.err = s.cpu(ctx)
	m.bench = ownCPU()
}

// end returns seconds.
func (m *meter) end(ctx context.Context, s store) (bench, redis float64, err error) {
	bench = (ownCPU() - m.bench).Seconds()
	redis, err = s.cpu(ctx)
	return bench, redis - m.redis, errors.Join(m.err, err)
}

// cpu returns the seconds for which the server was on a core.
func (s store) cpu(ctx context.Context) (float64, error) {
	info := s.client.InfoMap(ctx, "cpu")
	var user, system float64
	_, err := fmt.Sscan(info.Item("CPU", "used_cpu_user")+" "+info.Item("CPU", "used_cpu_sys"), &user, &system)
	return user + system, errors.Join(info.Err(), err)
}
