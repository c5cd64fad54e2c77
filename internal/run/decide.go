package run

// How is how an operation has ended: whether it has returned, and with which product.
type How uint8

const (
	Interrupted     How = iota // it did not return: a panic, or runtime.Goexit
	TimedOut                   // no product: its context was done
	Broken                     // a product that is known to be wrong
	LeftOpen                   // no product: something else will answer, and the door cannot see what
	Partial                    // a product that cannot be stored: too long, or not in memory
	Bypassed                   // a product that the door did not see
	Refused                    // a product that can be stored, and passes on a refusal: a retry may have another
	Forbidden                  // a product that must not be stored: the key is freed, also after Keep and if a part was sent, but not after Unknown
	NothingHappened            // a product that can be stored, and says that the operation has had no effect: the key is freed
	Whole                      // a product that can be stored
)

// Facts are what Decide decides by.
type Facts struct {
	How        How
	Wish       Wish
	Sent       bool // a part of the product was sent
	Strict     bool // Run.IsStrict: at most once, or an intent journal has the run's row
	RuleStores bool // the door's rule stores such a product
}

// Action is what a run does with its key.
type Action uint8

const (
	Leave            Action = iota // nothing: the key stays taken until its lease, and then any hold, has expired
	Free                           // release the key: a retry runs
	Store                          // settle the key with the product
	Tombstone                      // settle it with a tombstone
	UnknownTombstone               // settle it with a tombstone whose record.Record.Unknown is set
)

// Decide returns what a run does with its key, and whether its outcome is unknown. The first row that fits counts. A dash
// fits everything, and "failed" is left open, timed out or broken. Leave is the zero Action, which does no harm.
//
//	how                        wish             sent  strict  stores  action             outcome
//	interrupted                keep             -     no      -       tombstone          unknown
//	interrupted                -                yes   no      -       unknown tombstone  unknown
//	interrupted                -                -     -       -       leave              unknown
//	-                          unknown          yes   no      -       unknown tombstone  unknown
//	-                          unknown          -     -       -       leave              unknown
//	bypassed                   -                -     -       -       tombstone          known
//	forbidden                  -                -     -       -       free               known
//	-                          discard          -     -       -       free               known
//	left open                  keep             -     -       -       tombstone          known
//	failed                     keep             -     no      -       tombstone          unknown
//	failed                     -                yes   no      -       unknown tombstone  unknown
//	failed                     -                -     -       -       leave              unknown
//	partial                    -                -     -       -       tombstone          known
//	refused                    keep             -     -       -       store              known
//	refused                    -                yes   -       -       store              known
//	refused                    -                -     yes     -       leave              unknown
//	refused                    -                -     -       -       free               known
//	nothing happened           keep             -     -       -       store              known
//	nothing happened           -                yes   -       -       store              known
//	nothing happened           -                -     -       -       free               known
//	whole                      keep             -     -       -       store              known
//	whole                      -                yes   -       -       store              known
//	whole                      -                -     -       yes     store              known
//	whole                      -                -     -       no      free               known
//
// A key whose run's outcome is unknown is left: an immediate retry must not run, and a later one does, unless the
// run is strict. If a part of the product was sent, or the operation has called Keep, no retry may ever run,
// hence the tombstone. A strict run needs none: its hold, or its row in the journal, protects the key, and also tells that
// the outcome is unknown. For the same reason a strict run that passes on a refusal is left: stored, the refusal would be
// its result for the whole retention, and freed, a retry would do again what the operation has done before it was
// refused. An operation that has done nothing before says so by Discard.
func Decide(f Facts) (action Action, unknown bool) {
	isDoubtful := f.How == Interrupted || f.Wish == WishUnknown
	switch {
	case isDoubtful:
		return unknownAction(f), true
	case f.How == Bypassed:
		return Tombstone, false
	case f.Wish == WishDiscard, f.How == Forbidden:
		return Free, false
	case f.How == LeftOpen && f.Wish == WishKeep:
		return Tombstone, false
	case f.How == LeftOpen, f.How == TimedOut, f.How == Broken:
		return unknownAction(f), true
	case f.How == Partial:
		return Tombstone, false
	case f.Wish == WishKeep, f.Sent:
		return Store, false
	case f.How == Refused && f.Strict:
		return Leave, true
	case f.How == Whole && f.RuleStores:
		return Store, false
	}
	return Free, false
}

// unknownAction is Decide for an unknown outcome.
func unknownAction(f Facts) Action {
	switch {
	case f.Strict:
		return Leave
	case f.Wish == WishKeep:
		return Tombstone
	case f.Sent:
		return UnknownTombstone
	}
	return Leave
}
