package run

// Product is what an operation leaves behind: a response, a value. The goroutine that began the run calls its methods,
// after CutOff.
type Product interface {
	// Payload returns the product as the payload of a record, in two parts. ok is false if it has too many parts to be
	// stored.
	Payload() (head, body []byte, ok bool)
	// Tombstone returns the payload of a tombstone. If known is false, it is not known what the operation has done.
	Tombstone(known bool) []byte
	// Stores reports whether the door's rule stores such a product. It is called if nothing else decides. strict is that of
	// Run.IsStrict.
	Stores(strict bool) bool
	// NeedsNoTx reports whether the product needs no transaction of a journal, because it says that nothing has happened.
	NeedsNoTx() bool
	// Abort is called if the operation has not returned. Nothing of the product is returned or sent any more.
	Abort()
	Sent() bool     // reports whether a part of the product was sent, so that nothing can replace it
	String() string // describes the product in an error: "answered 201"
}

// TxProduct is a Product that a transaction of the operation can commit. The transaction calls BeginTx, Seal, Changed,
// Committed, Rewind and Freeze, in any goroutine of the operation. A Guard with a journal is for such products only.
//
// Each may panic in code that is not this module's, and has then done what it says as far as it concerns the product.
type TxProduct interface {
	Product
	// BeginTx begins a part of the product that belongs to a transaction. Nothing of it is sent before Committed or Rewind. It
	// returns ErrCommitted if a part of the product was sent before.
	BeginTx() error
	// Seal passes the payload of the product to store, which copies it, and puts the product back as it was at BeginTx: the
	// transaction may be run again, and the last Seal counts. After an error Rewind is called.
	Seal(store func(head, body []byte)) error
	Changed() bool // reports whether the product was changed since Seal
	Committed()    // the transaction is committed: the product is what was sealed last, and is final
	Rewind()       // the transaction is rolled back: the product is as it was at BeginTx
	Freeze()       // it is not known, or the product will be replaced: later changes fail
}
