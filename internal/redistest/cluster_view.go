package redistest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// view is a cluster as one node sees it: the reply to CLUSTER NODES.
type view []node

type node struct {
	id     string
	flags  []string // "myself", "master", "slave", "fail?", "fail" ...
	master string   // of a replica: its master's id
	epoch  int64    // decides between owners of a slot; a replica has its master's
	link   string   // "connected"
	slots  []slotRange
}

type slotRange struct{ first, last int }

func (n node) has(flag string) bool { return slices.Contains(n.flags, flag) }

func (v view) self() node {
	i := slices.IndexFunc(v, func(n node) bool { return n.has("myself") })
	if i < 0 {
		return node{}
	}
	return v[i]
}

// owner returns the master that owns the slot in this view.
func (v view) owner(slot int) (node, bool) {
	for _, n := range v {
		for _, r := range n.slots {
			if n.has("master") && r.first <= slot && slot <= r.last {
				return n, true
			}
		}
	}
	return node{}, false
}

// views returns the view of each node that answers.
func (c *Cluster) views(ctx context.Context) map[*Server]view {
	views := map[*Server]view{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, s := range c.servers {
		asking.Go(func() {
			_ = s.query(ctx, func(ctx context.Context, client *redis.Client) error {
				text, err := client.ClusterNodes(ctx).Result()
				if err != nil {
					return err
				}
				v, err := parseView(text)
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					views[s] = v
				}
				return err
			})
		})
	}
	asking.Wait()
	return views
}

// parseView reads lines of the form
//
//	id ip:port@bus flags master ping pong epoch link slot first-last [slot->-id]
func parseView(text string) (view, error) {
	var v view
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			return nil, fmt.Errorf("redistest: CLUSTER NODES has a line %q", line)
		}
		n := node{id: f[0], flags: strings.Split(f[2], ","), master: f[3], link: f[7]}
		var err error
		if n.epoch, err = strconv.ParseInt(f[6], 10, 64); err != nil {
			return nil, fmt.Errorf("redistest: CLUSTER NODES has an epoch %q", f[6])
		}
		for _, s := range f[8:] {
			if strings.HasPrefix(s, "[") { // a slot that moves still belongs to this node
				continue
			}
			r, err := parseSlots(s)
			if err != nil {
				return nil, err
			}
			n.slots = append(n.slots, r)
		}
		v = append(v, n)
	}
	return v, nil
}

func parseSlots(s string) (slotRange, error) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 14)
	if err != nil {
		return slotRange{}, fmt.Errorf("redistest: CLUSTER NODES has slots %q", s)
	}
	to, err := strconv.ParseUint(last, 10, 14)
	if err != nil || to < from {
		return slotRange{}, fmt.Errorf("redistest: CLUSTER NODES has slots %q", s)
	}
	return slotRange{int(from), int(to)}, nil
}
