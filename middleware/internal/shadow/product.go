package shadow

import (
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// Product is a response that was sent: what a later one is compared with.
type Product struct {
	Status   int
	Digest   []byte // of the body; empty if it is not to be compared
	IsStored bool
}

var _ run.Product = (*Product)(nil)

// Payload returns the status as a tombstone has it, and the digest.
func (p *Product) Payload() (head, body []byte, ok bool) {
	return response.Tombstone(p.Status), p.Digest, true
}

func (p *Product) Tombstone(bool) []byte { return response.Tombstone(p.Status) }
func (p *Product) Stores(bool) bool      { return p.IsStored }
func (*Product) NeedsNoTx() bool         { return false } // it is asked with a journal only
func (*Product) Abort()                  {}
func (*Product) Sent() bool              { return true }
func (*Product) String() string          { return "answered" }
