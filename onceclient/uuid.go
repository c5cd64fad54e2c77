package onceclient

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"
)

// NewKey returns a new key: a UUID of version 7 (RFC 9562 section 5.7), which begins with the time in milliseconds, so that
// stored keys sort by age and are cheap to index. It may be called concurrently.
func NewKey() string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], uint64(time.Now().UnixMilli())<<16)
	_, _ = rand.Read(id[6:]) // never fails
	id[6] = id[6]&0x0f | 7<<4
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
