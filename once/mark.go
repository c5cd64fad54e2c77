package once

import "errors"

// mark is an error with what f knows about its effect.
type mark struct {
	err   error
	knows knowledge
}

type knowledge uint8

const (
	noMark knowledge = iota
	nothingHappened
	final
	unknown
)

func (m *mark) Error() string { return m.err.Error() }
func (m *mark) Unwrap() error { return m.err }

// NothingHappened marks an error of the function of [Do]: the function took no effect, so its key is freed, and the next
// call runs. Use it with [WithAtMostOnce] and with an intent journal, which store an error that has no mark.
//
// A mark counts wherever it is in the chain of the error that the function returns, as errors.As finds it. If there are
// several, the outermost counts. So do not make a marked error the cause of a context: others, such as package lock, wrap
// the cause in their errors. A mark counts only for the Do whose function returns it. No error that Do returns has one, so
// that an inner Do's error cannot free the key of an outer one, which may have taken effect already: mark it again.
// NothingHappened returns nil if err is nil.
func NothingHappened(err error) error { return marked(err, nothingHappened) }

// Final marks an error of the function of [Do]: it is the result. Its text is stored, in every mode, and the next call
// gets it as a [*StoredError]. See [NothingHappened] for what the marks have in common.
func Final(err error) error { return marked(err, final) }

// Unknown marks an error of the function of [Do]: the function may have taken effect, because a COMMIT or a charge got
// no reply, or its context ended in between. Nothing is stored, and the key is left as after a crash. The next call
// gets [ErrInFlight] until the lease has run out. Then it runs or, with [WithAtMostOnce], gets [ErrOutcomeUnknown]. With an
// intent journal the row counts, not the lease: ErrInFlight until [WithMaxDuration] has passed since the run began, and
// then ErrOutcomeUnknown. See [NothingHappened] for what the marks have in common.
func Unknown(err error) error { return marked(err, unknown) }

func marked(err error, knows knowledge) error {
	if err == nil {
		return nil
	}
	return &mark{err, knows}
}

// knowledgeOf returns what f knows by the outermost mark in err.
func knowledgeOf(err error) knowledge { return outermost(err).knows }

// outermost returns the outermost mark in err, and the zero mark if there is none.
func outermost(err error) mark {
	if m := (*mark)(nil); errors.As(err, &m) {
		return *m
	}
	return mark{}
}
