package middleware

import (
	"errors"
	"fmt"

	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware/internal/capture"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// product is a handler's response as a [run.Product].
type product struct {
	writer         capture.Writer
	options        *options
	control        *run.Control
	cookiesDropped bool // what was stored is without the response's cookies
}

// Why a transaction is not committed.
var (
	errServerErrorInTx = errors.New("middleware: the transaction is rolled back, because its response is of 500 or above (WithoutServerErrors)")
	errNothingInTx     = errors.New("middleware: the transaction is rolled back, because by its response nothing has happened (WithNothingHappened)")
)

func (p *product) BeginTx() error {
	err := p.writer.BeginPart()
	if errors.Is(err, capture.ErrSent) {
		return ErrCommitted
	}
	return err
}

func (p *product) Seal(store func(head, body []byte)) error {
	return p.writer.SetAside(func() error {
		if p.options.isForbidden(p.writer.Status()) {
			return errServerErrorInTx
		}
		wish, _, _ := p.control.Said()
		isDecided := wish == run.WishKeep || wish == run.WishUnknown
		if !isDecided && p.options.saysNothing(p.writer.Status(), p.writer.HeaderAtStatus) {
			return errNothingInTx
		}
		head, body, ok := p.Payload()
		if !ok {
			return journal.ErrTooLong
		}
		store(head, body)
		return nil
	})
}

func (p *product) Changed() bool { return p.writer.WrittenSince() }
func (p *product) NeedsNoTx() bool {
	return p.writer.Status() >= 400 && p.writer.Status() < 500
}
func (p *product) Committed() { p.writer.Committed() }
func (p *product) Rewind()    { p.writer.Rewind() }
func (p *product) Freeze()    { p.writer.Freeze() }

func (p *product) Payload() (head, body []byte, ok bool) {
	r, dropped := p.writer.Response(p.options.cookies)
	p.cookiesDropped = dropped
	return r.Payload()
}

func (p *product) Tombstone(known bool) []byte {
	if !known {
		return response.Tombstone(0)
	}
	return response.Tombstone(p.writer.Status())
}

func (p *product) Stores(strict bool) bool { return p.options.stores(p.writer.Status(), strict) }

// stores reports whether a response with this status is stored. With WithAtMostOnce or an intent journal a 5xx always is,
// because a handler that fails can rarely be sure that nothing has happened.
func (o *options) stores(status int, strict bool) bool {
	return o.shouldStore(status) || strict && status >= 500
}

func (p *product) Abort() { p.writer.Abort() }

func (p *product) Sent() bool { return p.writer.Started() }

func (p *product) String() string { return fmt.Sprintf("answered %d", p.writer.Status()) }

// eventOf returns the Event of a run whose own response stands.
func (p *product) eventOf(result *run.Result, status int) Event {
	e := eventOf(result, status)
	if e.Outcome == Executed && p.cookiesDropped {
		e.Outcome = CookiesDropped
	}
	return e
}
