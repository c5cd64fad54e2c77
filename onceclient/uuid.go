package onceclient

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

// NewKey returns a new key: a UUID of version 7 (RFC 9562 section 5.7), which begins with the time, so that stored keys
// sort by age and are cheap to index. Each key of a process sorts after the one before. It may be called concurrently.
func NewKey() string {
	var id [16]byte
	_, _ = rand.Read(id[8:]) // never fails
	instant := keyClock.next(time.Now())
	binary.BigEndian.PutUint64(id[:8], instant>>12<<16|instant&0xfff)
	id[6] |= 7 << 4
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

var keyClock clock

// clock returns increasing instants, in milliseconds since 1970 with 12 binary places.
type clock struct {
	mu   sync.Mutex
	last uint64 // the latest instant that was returned. Guarded by mu.
}

func (c *clock) next(now time.Time) uint64 {
	instant := uint64(now.UnixMilli())<<12 | uint64(now.Nanosecond()%1e6)<<12/1e6
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(instant, c.last+1)
	return c.last
}
