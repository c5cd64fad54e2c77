package lock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// maxScan is the most keys that one step of Scan may look at.
const maxScan = 1000

// Scanned is what one step of [Locker.Scan] has found.
type Scanned struct {
	Infos   []Info   // of claims and values, in no order; never Free
	Foreign []string // keys with names like those of this Locker that hold what this package did not write
}

// Scan looks through the keys of all masters for those of the Locker's namespace. In each step it asks one server to
// look at about count of its keys, of any program (https://redis.io/docs/latest/commands/scan/), and inspects those of
// the namespace. If the server has many keys of other programs, most steps find nothing. Nothing is sent between two
// steps, so the loop's body sets the pace. Scan panics if count is not from 1 to 1,000.
//
// A key that is there from the first step to the last is found, perhaps twice. A key that comes, goes, or moves to
// another server of a Cluster during the scan may be missed. Fence counters are left out.
//
// An error is the last step: the rest of the keys is not scanned. Each step takes at most twice the time for one
// operation ([WithOpTimeout]).
func (l *Locker) Scan(ctx context.Context, count int) iter.Seq2[Scanned, error] {
	if count < 1 || count > maxScan {
		panic(fmt.Sprintf("lock.Scan: count is %d, want 1 to %d", count, maxScan))
	}
	return func(yield func(Scanned, error) bool) {
		err := l.ready(ctx, "scan")
		var nodes []redis.Cmdable
		if err == nil {
			nodes, err = l.masters(ctx)
		}
		for i := 0; err == nil && i < len(nodes); i++ {
			var more bool
			if more, err = l.scanNode(ctx, nodes[i], count, yield); !more && err == nil {
				return
			}
		}
		if err != nil {
			yield(Scanned{}, err)
		}
	}
}

// masters returns a client of each master.
func (l *Locker) masters(ctx context.Context) (nodes []redis.Cmdable, err error) {
	cluster, ok := l.client.(*redis.ClusterClient)
	if !ok {
		return []redis.Cmdable{l.client}, nil
	}
	var mu sync.Mutex
	var found []redis.Cmdable
	err = l.withTimeout(ctx, func(ctx context.Context) error {
		return cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			found = append(found, node)
			return nil
		})
	})
	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("lock: scan: %w", err)
	}
	return found, nil
}

// scanNode scans one server, and reports whether the loop goes on.
func (l *Locker) scanNode(
	ctx context.Context, node redis.Cmdable, count int, yield func(Scanned, error) bool,
) (more bool, err error) {
	for cursor := uint64(0); ; {
		var keys []string
		keys, cursor, err = l.scanStep(ctx, node, cursor, count)
		if err != nil {
			return false, fmt.Errorf("lock: scan: %w", err)
		}
		found, err := l.inspectAll(ctx, keys)
		if err != nil {
			return false, err
		}
		if !yield(found, nil) {
			return false, nil
		}
		if cursor == 0 {
			return true, nil
		}
	}
}

// scanStep sends one SCAN.
func (l *Locker) scanStep(ctx context.Context, node redis.Cmdable, cursor uint64, count int) ([]string, uint64, error) {
	type page struct {
		keys   []string
		cursor uint64
	}
	pages := make(chan page, 1)
	pattern := globEscaper.Replace(string(l.namespace)) + ":{????}*"
	err := l.withTimeout(ctx, func(ctx context.Context) error {
		keys, next, err := node.Scan(ctx, cursor, pattern, int64(count)).Result()
		pages <- page{keys, next}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	p := <-pages
	return p.keys, p.cursor, nil
}

// globEscaper escapes the special characters of a pattern of SCAN.
var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// inspectAll inspects the keys of one step at the same time, so that their commands share a batch. It leaves out the
// keys that are not the Locker's, and those that are free now.
func (l *Locker) inspectAll(ctx context.Context, keys []string) (found Scanned, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, text := range keys {
		key, parseErr := l.namespace.ParseKey(text)
		if parseErr != nil {
			continue
		}
		all.Go(func() {
			info, inspectErr := l.inspect(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(inspectErr, ErrForeign):
				found.Foreign = append(found.Foreign, key.Text)
			case inspectErr != nil:
				err = inspectErr
			case info.State != Free:
				found.Infos = append(found.Infos, info)
			}
		})
	}
	all.Wait()
	return found, err
}
