package store

import (
	"bytes"
	"fmt"

	"github.com/onceguard/onceguard/lock/internal/pipeline"
)

// With WithReplicas, these functions confirm a claim or value that an earlier command wrote. A WAIT only counts
// replicas that have the writes of its own connection. So the claim or value is written again, unchanged, before the
// WAIT.

// confirmClaim returns nil if enough replicas have the claim of o, or if the claim was not granted. r is the reply to
// the claim. Without WithReplicas confirmClaim only notes in o.arrived that the claim was granted.
func (o *op) confirmClaim(r *pipeline.Reply) error {
	granted := o.isGrantedBy(r)
	o.arrived = o.arrived || granted
	switch {
	case r.Absent: // this command has written the claim
		return r.WaitErr
	case !granted || !o.store.config.replicated():
		return nil
	}
	// An earlier try has written the claim, and its reply was lost.
	r, err := o.extend(o.store.config.TTL)
	switch {
	case err != nil:
		return err
	case holderOf(r, o.token) != Ours:
		return ErrLost
	}
	return r.WaitErr
}

// errChanged is the error of a value that changed before it was confirmed.
var errChanged = fmt.Errorf("%w: the value has changed meanwhile", pipeline.ErrNotReplicated)

// confirmValue returns nil if enough replicas have the value with that head. It ends by the time at which o times out.
func (o *op) confirmValue(head []byte) error {
	return o.Do(func() (*pipeline.Reply, error) {
		r, err := o.EvalDurable(confirmScript, 1, o.key.arg, arg(head))
		if err == nil && !bytes.Equal(r.Text, head) {
			return nil, errChanged
		}
		if err == nil {
			err = r.WaitErr
		}
		return r, err
	}).Err
}
