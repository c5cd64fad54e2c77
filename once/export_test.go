package once

import "github.com/onceguard/onceguard/internal/run"

// What Do makes of an error that it has not made itself.
var (
	ForeignOf = foreignOf
	Unmark    = unmark
)

// HasMark reports whether a mark is found in err.
func HasMark(err error) bool { return knowledgeOf(err) != noMark }

// HowItEnds returns how a run ends whose function has returned err.
func (g *Guard) HowItEnds(err error) run.How { return (&product{Guard: g}).take(nil, err).How }

// Decode decodes the payload of a record into v.
func (g *Guard) Decode(payload []byte, v any) error { return g.decode(payload, v) }

// Encode returns the payload of a record.
func (g *Guard) Encode(v any, err error) ([]byte, error) {
	p := &product{Guard: g}
	if failed := p.encode(v, err); failed != nil {
		return nil, failed
	}
	head, body, _ := p.Payload()
	return append(head, body...), nil
}

// EncodeKey returns the key of the lock.
func EncodeKey(k Key) string { return k.encode() }

// UnreasonedKinds returns the kinds of refusals for which newRefused has no reason.
func UnreasonedKinds() (kinds []run.Kind) {
	for kind := run.InFlight; kind <= run.CommitUnknown; kind++ {
		if kind != run.Expired && reasons[kind] == nil {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Reason returns the reason of a refusal.
func Reason(kind run.Kind, outcome run.Outcome) error {
	return newRefused(&run.Result{Kind: kind, Outcome: outcome}, "").Reason
}
