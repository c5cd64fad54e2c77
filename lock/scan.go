package lock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/option"
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
// An error ends the scan: the rest of the keys is not scanned. Each step takes at most twice the time for one operation
// ([WithOpTimeout]).
func (l *Locker) Scan(ctx context.Context, count int) iter.Seq2[Scanned, error] {
	option.Check(1 <= count && count <= maxScan, "lock.Scan: count is %d, want 1 to %d", count, maxScan)
	return func(yield func(Scanned, error) bool) {
		if err := l.ready(ctx, "scan"); err != nil {
			yield(Scanned{}, err)
			return
		}
		nodes, err := l.servers.masters(ctx)
		if err != nil {
			yield(Scanned{}, fmt.Errorf("lock: scan: %w", err))
			return
		}
		for _, node := range nodes {
			for cursor, begun := uint64(0), false; cursor != 0 || !begun; begun = true {
				var step Scanned
				if step, cursor, err = l.scanStep(ctx, node, cursor, count); !yield(step, err) || err != nil {
					return
				}
			}
		}
	}
}

// scanStep sends one SCAN, and inspects the keys that it finds at the same time, so that their commands share a batch.
// It leaves out the keys that are not the Locker's, and those that are free now.
func (l *Locker) scanStep(
	ctx context.Context, node redis.Cmdable, cursor uint64, count int,
) (step Scanned, next uint64, err error) {
	pattern := globEscaper.Replace(string(l.namespace)) + ":{????}*"
	page, err := withTimeout(ctx, &l.servers, func(ctx context.Context) (*redis.ScanCmd, error) {
		page := node.Scan(ctx, cursor, pattern, int64(count))
		return page, page.Err()
	})
	if err != nil {
		return Scanned{}, 0, fmt.Errorf("lock: scan: %w", err)
	}
	keys, next := page.Val()
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, text := range keys {
		key, parseErr := l.namespace.ParseKey(text)
		if parseErr != nil {
			continue
		}
		all.Go(func() {
			info, inspectErr := inspect(ctx, l.store, key)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(inspectErr, ErrForeign):
				step.Foreign = append(step.Foreign, key.Text)
			case inspectErr != nil:
				err = inspectErr
			case info.State != Free:
				step.Infos = append(step.Infos, info)
			}
		})
	}
	all.Wait()
	if err != nil {
		return Scanned{}, 0, err
	}
	return step, next, nil
}

// globEscaper escapes the special characters of a pattern of SCAN.
var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
